"""Protobuf to events and effects to protobuf; the only module that knows Envoy's messages.

Header and body messages, which are nearly all of the traffic, are read by hand in the layout Envoy gives
them: ``HttpBody`` and ``StreamedBodyResponse`` share their field numbers, so a passing chunk only gets a new
prefix. Answers are written by hand from constant tags; field numbers are those of
``envoy/service/ext_proc/v3/external_processor.proto``. Field 11 of ``ProcessingResponse`` is never set:
the PyPI bindings and Envoy 1.40 disagree about what it is.

Anything the readers by hand do not recognise goes to the protobuf runtime, so that field order and unknown
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
from dataplane.extproc.wire import (
    Unusual,
    encode_varint,
    field,
    field_head,
    name_field,
    read_header_map,
    read_varint,
    text_field,
)
from dataplane.headers import Headers


class MessageError(ValueError):
    """The peer sent bytes that are not a ProcessingRequest, or one that says nothing."""


_END_OF_STREAM: Final = b"\x10\x01"
"""In ``HttpBody`` and ``StreamedBodyResponse``."""
_HEADERS_END: Final = b"\x18\x01"
"""In ``HttpHeaders``."""
_CLEAR_BODY: Final = b"\x10\x01"
"""In ``BodyMutation``."""
_NO_METADATA: Final = b"\x42\x00"
"""Envoy's way to forward none."""
_MAX_KNOWN_TAIL_BYTES: Final = 256


class WireMetadata:
    """Filter metadata of one message, kept encoded until somebody asks."""

    __slots__ = ("_context", "_raw", "_spaces")

    def __init__(self, raw: bytes = b"", context: Any = None) -> None:
        self._raw = raw
        self._context = context
        self._spaces: dict[str, Mapping[str, Any] | None] = {}

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        """The Struct under ``name`` as plain Python values, not to be changed; None when it was not sent."""
        try:
            return self._spaces[name]
        except KeyError:
            found = self._spaces[name] = self._decode(name)
            return found

    def _decode(self, name: str) -> Mapping[str, Any] | None:
        if self._context is None:
            try:
                self._context = pb.ProcessingRequest.FromString(self._raw).metadata_context
            except DecodeError as error:
                raise MessageError(f"metadata cannot be decoded: {error}") from error
        found = self._context.filter_metadata
        return _struct(found[name]) if name in found else None


_EMPTY_METADATA: Final = WireMetadata(_NO_METADATA)


def _struct(struct: Any) -> dict[str, Any]:
    return {key: _value(value) for key, value in struct.fields.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(value.struct_value)
    if kind == "list_value":
        return [_value(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def decode(message: bytes) -> Event:
    """One ProcessingRequest as an event. ``MessageError`` if it is none."""
    reader = _READERS.get(message[:1])
    if reader is not None:
        try:
            return reader(message)
        except (Unusual, IndexError):
            pass
    return _decode_any(message)


def _read_body(event_type: type[RequestBody | ResponseBody]) -> Callable[[bytes], Event]:
    """A reader of body messages as Envoy writes them."""

    def read(message: bytes) -> Event:
        size = message[1]
        at = 2
        if size >= 0x80:
            size, at = read_varint(message, 1)
        end = at + size
        body, end_of_stream = b"", False
        if at < end and message[at] == 0x0A:
            size = message[at + 1]
            start = at + 2
            if size >= 0x80:
                size, start = read_varint(message, at + 1)
            at = start + size
            body = message[start:at]
        if at != end:
            if message[at:end] != _END_OF_STREAM:
                raise Unusual
            end_of_stream = True
        tail = message[end:]
        if tail == _NO_METADATA:
            return event_type(body, end_of_stream, _EMPTY_METADATA)
        metadata, modes = _read_tail(tail, end - len(message))
        return event_type(body, end_of_stream, metadata, modes)

    return read


def _read_headers(event_type: type[RequestHeaders | ResponseHeaders]) -> Callable[[bytes], Event]:
    """A reader of header messages as Envoy writes them."""

    def read(message: bytes) -> Event:
        end, at = read_varint(message, 1)
        end += at
        if message[at] != 0x0A:
            raise Unusual
        size, at = read_varint(message, at + 1)
        pairs = read_header_map(message, at, at + size)
        at += size
        end_of_stream = message[at:end] == _HEADERS_END
        if at != end and not end_of_stream:
            raise Unusual
        metadata, modes = _read_tail(message[end:], end - len(message))
        return event_type(Headers(pairs), end_of_stream, metadata, modes)

    return read


def _read_tail(tail: bytes, missing: int) -> tuple[WireMetadata | None, Modes | None]:
    """What follows the message proper, in order of field numbers: metadata, attributes, configuration.

    ``missing`` is how many bytes the message proper lacks, if more than none.
    """
    if missing > 0:
        raise Unusual
    return _known_tail(tail) if len(tail) <= _MAX_KNOWN_TAIL_BYTES else _decode_tail(tail)


def _decode_tail(tail: bytes) -> tuple[WireMetadata | None, Modes | None]:
    has_metadata, modes = False, None
    at = 0
    while at < len(tail):
        tag = tail[at]
        size, start = read_varint(tail, at + 1)
        at = start + size
        if tag == 0x42:
            has_metadata = True
        elif tag == 0x5A and modes is None:
            modes = _protocol_config(tail[start:at])
        elif tag != 0x4A:
            raise Unusual
    if at != len(tail):
        raise Unusual
    return WireMetadata(tail) if has_metadata else None, modes


_known_tail: Final = lru_cache(maxsize=1024)(_decode_tail)
"""Metadata is the same in all messages of a stream, and often in all streams."""


def _protocol_config(raw: bytes) -> Modes:
    try:
        return _modes_of(pb.ProtocolConfiguration.FromString(raw))
    except DecodeError:
        raise Unusual from None


def _decode_any(message: bytes) -> Event:
    """Any layout, by the protobuf runtime."""
    try:
        request = pb.ProcessingRequest.FromString(message)
    except DecodeError as error:
        raise MessageError(f"not a ProcessingRequest: {error}") from error
    kind = request.WhichOneof("request")
    if kind is None:
        raise MessageError("a ProcessingRequest without a request")
    return _DECODERS[kind](request)


def _metadata(request: Any) -> WireMetadata | None:
    return WireMetadata(context=request.metadata_context) if request.HasField("metadata_context") else None


def _modes(request: Any) -> Modes | None:
    return _modes_of(request.protocol_config) if request.HasField("protocol_config") else None


def _modes_of(config: Any) -> Modes:
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
        return event_type(message.body, message.end_of_stream, _metadata(request), _modes(request))

    return build


_DECODERS: Final[Mapping[str, Callable[[Any], Event]]] = {
    "request_headers": _request_headers,
    "response_headers": _response_headers,
    "request_body": _body(RequestBody, "request_body"),
    "response_body": _body(ResponseBody, "response_body"),
    "request_trailers": lambda request: RequestTrailers(_metadata(request)),
    "response_trailers": lambda request: ResponseTrailers(_metadata(request)),
}


_READERS: Final[Mapping[bytes, Callable[[bytes], Event]]] = {
    b"\x12": _read_headers(RequestHeaders),
    b"\x1a": _read_headers(ResponseHeaders),
    b"\x22": _read_body(RequestBody),
    b"\x2a": _read_body(ResponseBody),
}


def encode(effect: Effect) -> tuple[bytes, ...]:
    """One ProcessingResponse, as parts to be written one after the other."""
    kind = type(effect)
    if kind is StreamBody:
        return _stream_body(effect)  # type: ignore[arg-type]
    if kind is AnswerHeaders:
        return (_answer(effect.proceed, 0x12 if effect.response else 0x0A),)  # type: ignore[union-attr]
    if kind is AnswerBody:
        return (_answer_body(effect),)  # type: ignore[arg-type]
    if kind is AnswerTrailers:
        return (_answer_trailers(effect),)  # type: ignore[arg-type]
    return (_immediate(effect),)  # type: ignore[arg-type]


def _stream_body(effect: StreamBody) -> tuple[bytes, ...]:
    body = effect.body
    prefix = _stream_prefix(0x22 if effect.response else 0x1A, len(body), effect.end_of_stream)
    if effect.metadata:
        end = _END_OF_STREAM if effect.end_of_stream else b""
        return prefix, body, end + field(0x42, _encode_struct(effect.metadata))
    return (prefix, body, _END_OF_STREAM) if effect.end_of_stream else (prefix, body)


@lru_cache(maxsize=4096)
def _stream_prefix(tag: int, size: int, end_of_stream: bool) -> bytes:
    """Everything before the chunk: BodyResponse.response.body_mutation.streamed_response.body."""
    prefix = b"\x0a" + encode_varint(size) if size else b""
    length = len(prefix) + size + (2 if end_of_stream else 0)
    for level in (0x1A, 0x1A, 0x0A, tag):
        head = field_head(level, length)
        prefix = head + prefix
        length += len(head)
    return prefix


def _answer(proceed: Proceed, tag: int) -> bytes:
    wire = proceed.wire.get(tag)
    if wire is None:
        wire = proceed.wire[tag] = _encode_answer(proceed, tag)
    return wire


def _answer_body(effect: AnswerBody) -> bytes:
    tag = 0x22 if effect.response else 0x1A
    if effect.body is None:
        return _answer(effect.proceed, tag)
    mutation = field(0x0A, effect.body) if effect.body else _CLEAR_BODY
    return _encode_answer(effect.proceed, tag, field(0x1A, mutation))


def _answer_trailers(effect: AnswerTrailers) -> bytes:
    answer = b"\x32\x00" if effect.response else b"\x2a\x00"
    return answer + field(0x42, _encode_struct(effect.metadata)) if effect.metadata else answer


def _encode_answer(proceed: Proceed, tag: int, body_mutation: bytes = b"") -> bytes:
    common = b""
    if proceed.set_headers or proceed.remove_headers:
        common = field(0x12, _header_mutation(proceed.set_headers, proceed.remove_headers))
    common += body_mutation
    if proceed.clear_route_cache:
        common += b"\x28\x01"
    out = field(tag, field(0x0A, common))
    if proceed.metadata:
        out += field(0x42, _encode_struct(proceed.metadata))
    return out


def _header_mutation(set_headers: Sequence[tuple[str, bytes]], remove: Sequence[str]) -> bytes:
    """Envoy 1.40 reads ``raw_value`` and replaces unless ``append`` says otherwise."""
    parts = [
        field(0x0A, field(0x0A, name_field(0x0A, name) + field(0x1A, value))) for name, value in set_headers
    ]
    parts += [name_field(0x12, name) for name in remove]
    return b"".join(parts)


def _encode_struct(values: Mapping[str, Any]) -> bytes:
    """google.protobuf.Struct: map entries of key and Value."""
    return b"".join(
        [
            field(0x0A, text_field(0x0A, key) + field(0x12, _encode_value(value)))
            for key, value in values.items()
        ]
    )


def _encode_value(value: Any) -> bytes:
    if isinstance(value, str):
        return text_field(0x1A, value)
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, int | float):
        return b"\x11" + pack("<d", value)
    if isinstance(value, Mapping):
        return field(0x2A, _encode_struct(value))
    return field(0x32, b"".join(field(0x0A, _encode_value(item)) for item in value))


def _immediate(reject: Reject) -> bytes:
    out = field(0x0A, b"\x08" + encode_varint(reject.status))
    if reject.headers:
        out += field(0x12, _header_mutation(reject.headers, ()))
    if reject.body:
        out += field(0x1A, reject.body)
    if reject.details:
        out += text_field(0x2A, reject.details)
    return field(0x3A, out)
