"""Protobuf to events and effects to protobuf; the only module that knows Envoy's messages.

Header messages are decoded by the protobuf runtime. Body messages, which are most of the traffic, are
read by hand: ``HttpBody`` and ``StreamedBodyResponse`` share their field numbers, so a passing chunk only
gets a new prefix. Answers are written by hand from constant tags; field numbers are those of
``envoy/service/ext_proc/v3/external_processor.proto``. Field 11 of ``ProcessingResponse`` is never set:
the PyPI bindings and Envoy 1.40 disagree about what it is.

Anything the fast reader does not recognise goes to the protobuf runtime, so that field order and unknown
fields never matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import pack
from typing import Any, Final

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.message import DecodeError

from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Effect,
    Event,
    Modes,
    Proceed,
    Reject,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    StreamBody,
)
from dataplane.headers import Headers


class MessageError(ValueError):
    """The peer sent bytes that are not a ProcessingRequest, or one that says nothing."""


_END_OF_STREAM: Final = b"\x10\x01"


class WireMetadata:
    """Filter metadata of one message, kept encoded until somebody asks."""

    __slots__ = ("_context", "_raw")

    def __init__(self, raw: bytes = b"", context: Any = None) -> None:
        self._raw = raw
        self._context = context

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        """The Struct under ``name`` as plain Python values; None when it was not sent."""
        if self._context is None:
            try:
                self._context = pb.ProcessingRequest.FromString(self._raw).metadata_context
            except DecodeError as error:
                raise MessageError(f"metadata cannot be decoded: {error}") from error
        found = self._context.filter_metadata
        return _struct(found[name]) if name in found else None


def _struct(struct: Any) -> dict[str, Any]:
    return {key: _value(value) for key, value in struct.fields.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(value.struct_value)
    if kind == "list_value":
        return [_value(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 35:
            raise MessageError("a length is out of range")


def decode(message: bytes) -> Event:
    """One ProcessingRequest as an event. ``MessageError`` if it is none."""
    if message:
        tag = message[0]
        if tag == 0x22 or tag == 0x2A:
            event = _fast_body(message, RequestBody if tag == 0x22 else ResponseBody)
            if event is not None:
                return event
    try:
        request = pb.ProcessingRequest.FromString(message)
    except DecodeError as error:
        raise MessageError(f"not a ProcessingRequest: {error}") from error
    kind = request.WhichOneof("request")
    if kind is None:
        raise MessageError("a ProcessingRequest without a request")
    return _DECODERS[kind](request)


def _fast_body(
    message: bytes, event_type: type[RequestBody | ResponseBody]
) -> RequestBody | ResponseBody | None:
    """A body message in the layout Envoy writes; None sends it to the protobuf runtime."""
    try:
        length, start = _varint(message, 1)
        end = start + length
        body, end_of_stream = b"", False
        at = start
        if at < end and message[at] == 0x0A:
            size, at = _varint(message, at + 1)
            body = message[at : at + size]
            at += size
        if at + 2 == end and message[at:end] == _END_OF_STREAM:
            end_of_stream = True
            at = end
        if at != end or end > len(message):
            return None
        if end == len(message):
            return event_type(body, end_of_stream, None)
        # Envoy writes fields in the order of their numbers: metadata (8) or attributes (9) come next.
        if message[end] not in (0x42, 0x4A):
            return None
        return event_type(body, end_of_stream, WireMetadata(message[end:]))
    except IndexError:
        return None


def _metadata(request: Any) -> WireMetadata | None:
    return WireMetadata(context=request.metadata_context) if request.HasField("metadata_context") else None


def _modes(request: Any) -> Modes | None:
    if not request.HasField("protocol_config"):
        return None
    config = request.protocol_config
    return Modes(
        _mode(config.request_body_mode),
        _mode(config.response_body_mode),
        config.send_body_without_waiting_for_header_response,
    )


def _mode(number: int) -> BodyMode:
    try:
        return BodyMode(number)
    except ValueError as error:
        raise MessageError(f"body mode {number} is not supported") from error


def _headers(message: Any) -> Headers:
    return Headers([(h.key, h.raw_value or h.value.encode()) for h in message.headers.headers])


def _request_headers(request: Any) -> Event:
    message = request.request_headers
    return RequestHeaders(_headers(message), message.end_of_stream, _metadata(request), _modes(request))


def _response_headers(request: Any) -> Event:
    message = request.response_headers
    return ResponseHeaders(_headers(message), message.end_of_stream, _metadata(request), _modes(request))


def _body(event_type: type[RequestBody | ResponseBody], field: str) -> Callable[[Any], Event]:
    def build(request: Any) -> Event:
        message = getattr(request, field)
        return event_type(message.body, message.end_of_stream, _metadata(request))

    return build


_DECODERS: Final[Mapping[str, Callable[[Any], Event]]] = {
    "request_headers": _request_headers,
    "response_headers": _response_headers,
    "request_body": _body(RequestBody, "request_body"),
    "response_body": _body(ResponseBody, "response_body"),
    "request_trailers": lambda request: RequestTrailers(_metadata(request)),
    "response_trailers": lambda request: ResponseTrailers(_metadata(request)),
}


def _encode_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(tag: int, payload: bytes) -> bytes:
    """A length-delimited field: ``tag`` is the encoded key byte."""
    return bytes((tag,)) + _encode_varint(len(payload)) + payload


def encode(effect: Effect) -> tuple[bytes, ...]:
    """One ProcessingResponse, as parts to be written one after the other."""
    kind = type(effect)
    if kind is StreamBody:
        return _stream_body(effect)  # type: ignore[arg-type]
    if kind is AnswerHeaders:
        return (_answer(effect.proceed, 0x12 if effect.response else 0x0A),)  # type: ignore[union-attr]
    if kind is AnswerBody:
        return (_answer(effect.proceed, 0x22 if effect.response else 0x1A),)  # type: ignore[union-attr]
    if kind is AnswerTrailers:
        return (b"\x32\x00" if effect.response else b"\x2a\x00",)  # type: ignore[union-attr]
    return (_immediate(effect),)  # type: ignore[arg-type]


def _stream_body(effect: StreamBody) -> tuple[bytes, ...]:
    body = effect.body
    prefix = _stream_prefix(0x22 if effect.response else 0x1A, len(body), effect.end_of_stream)
    return (prefix, body, _END_OF_STREAM) if effect.end_of_stream else (prefix, body)


@lru_cache(maxsize=4096)
def _stream_prefix(tag: int, size: int, end_of_stream: bool) -> bytes:
    """Everything before the chunk: BodyResponse.response.body_mutation.streamed_response.body."""
    prefix = b"\x0a" + _encode_varint(size) if size else b""
    length = len(prefix) + size + (2 if end_of_stream else 0)
    for level in (0x1A, 0x1A, 0x0A, tag):
        head = bytes((level,)) + _encode_varint(length)
        prefix = head + prefix
        length += len(head)
    return prefix


def _answer(proceed: Proceed, tag: int) -> bytes:
    wire = proceed.wire.get(tag)
    if wire is None:
        wire = proceed.wire[tag] = _encode_answer(proceed, tag)
    return wire


def _encode_answer(proceed: Proceed, tag: int) -> bytes:
    common = b""
    if proceed.set_headers or proceed.remove_headers:
        common = _field(0x12, _header_mutation(proceed.set_headers, proceed.remove_headers))
    if proceed.clear_route_cache:
        common += b"\x28\x01"
    out = _field(tag, _field(0x0A, common))
    if proceed.metadata:
        out += _field(0x42, _encode_struct(proceed.metadata))
    return out


def _header_mutation(set_headers: Sequence[tuple[str, bytes]], remove: Sequence[str]) -> bytes:
    """Envoy 1.40 reads ``raw_value`` and replaces unless ``append`` says otherwise."""
    parts = [
        _field(0x0A, _field(0x0A, _field(0x0A, name.encode()) + _field(0x1A, value)))
        for name, value in set_headers
    ]
    parts += [_field(0x12, name.encode()) for name in remove]
    return b"".join(parts)


def _encode_struct(values: Mapping[str, Any]) -> bytes:
    """google.protobuf.Struct: map entries of key and Value."""
    return b"".join(
        _field(0x0A, _field(0x0A, key.encode()) + _field(0x12, _encode_value(value)))
        for key, value in values.items()
    )


def _encode_value(value: Any) -> bytes:
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, int | float):
        return b"\x11" + pack("<d", value)
    if isinstance(value, str):
        return _field(0x1A, value.encode())
    if isinstance(value, Mapping):
        return _field(0x2A, _encode_struct(value))
    return _field(0x32, b"".join(_field(0x0A, _encode_value(item)) for item in value))


def _immediate(reject: Reject) -> bytes:
    out = _field(0x0A, b"\x08" + _encode_varint(reject.status))
    if reject.headers:
        out += _field(0x12, _header_mutation(reject.headers, ()))
    if reject.body:
        out += _field(0x1A, reject.body)
    if reject.details:
        out += _field(0x2A, reject.details.encode())
    return _field(0x3A, out)
