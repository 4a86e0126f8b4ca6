"""The codec against the protobuf runtime, message by message: what a real Envoy sends, and every answer."""

import base64
import json
from pathlib import Path

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.json_format import ParseDict

from dataplane.extproc import codec
from dataplane.extproc.codec import MessageError, decode, encode
from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Effect,
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
from tests.dataplane.extproc.vectors.oracle import as_plain, as_read_by_runtime

RECORDING = Path(__file__).with_name("vectors") / "envoy_messages.json"
STREAMS = json.loads(RECORDING.read_text())
MESSAGES = [
    pytest.param(base64.b64decode(entry["message"]), entry["says"], id=f"{name} {number}")
    for name, messages in STREAMS.items()
    for number, entry in enumerate(messages)
]


# -- what Envoy sends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "says"), MESSAGES)
def test_message_of_a_real_envoy_is_read_as_the_runtime_reads_it(message: bytes, says: dict):
    assert as_plain(decode(message), list(says["metadata"])) == says
    assert as_read_by_runtime(message) == says


@pytest.mark.parametrize(("message", "says"), MESSAGES)
def test_headers_and_bodies_of_a_real_envoy_never_need_the_runtime(message: bytes, says: dict, monkeypatch):
    read_by_runtime: list[bytes] = []
    runtime = codec._decode_any
    monkeypatch.setattr(codec, "_decode_any", lambda m: (read_by_runtime.append(m), runtime(m))[1])
    decode(message)
    assert read_by_runtime == ([message] if says["kind"].endswith("trailers") else [])


def test_recording_covers_every_kind_of_message():
    kinds = {entry["says"]["kind"] for messages in STREAMS.values() for entry in messages}
    assert kinds == {field.name for field in pb.ProcessingRequest.DESCRIPTOR.oneofs_by_name["request"].fields}


def test_every_kind_of_message_is_its_event():
    kinds = {
        "request_headers": RequestHeaders,
        "request_body": RequestBody,
        "request_trailers": RequestTrailers,
        "response_headers": ResponseHeaders,
        "response_body": ResponseBody,
        "response_trailers": ResponseTrailers,
    }
    for kind, event_type in kinds.items():
        request = pb.ProcessingRequest()
        getattr(request, kind).SetInParent()
        assert type(decode(request.SerializeToString())) is event_type


# -- single rules of decoding -----------------------------------------------------------------------------


def test_text_value_is_taken_when_there_is_no_raw_value():
    request = pb.ProcessingRequest()
    headers = request.request_headers.headers.headers
    headers.add(key="a", value="text")
    headers.add(key="b", value="text", raw_value=b"raw")
    headers.add(key="c", raw_value=b"\xff\x00")
    headers.add(key="d")
    event = decode(request.SerializeToString())
    assert isinstance(event, RequestHeaders)
    assert list(event.headers) == [("a", b"text"), ("b", b"raw"), ("c", b"\xff\x00"), ("d", b"")]


@pytest.mark.parametrize("kind", ["request_headers", "response_headers", "request_body", "response_body"])
def test_configuration_comes_with_whatever_message_is_first(kind: str):
    request = pb.ProcessingRequest()
    getattr(request, kind).SetInParent()
    request.protocol_config.request_body_mode = 2
    request.protocol_config.response_body_mode = 1
    request.protocol_config.send_body_without_waiting_for_header_response = True
    event = decode(request.SerializeToString())
    assert event.modes == Modes(BodyMode.BUFFERED, BodyMode.STREAMED, True)


@pytest.mark.parametrize("kind", ["request_headers", "response_body"])
@pytest.mark.parametrize("mode", [5, 77, -1])
def test_unknown_body_mode_is_refused_by_number(kind: str, mode: int):
    request = pb.ProcessingRequest()
    getattr(request, kind).SetInParent()
    request.protocol_config.request_body_mode = mode
    with pytest.raises(MessageError, match=f"body mode {mode} is not supported"):
        decode(request.SerializeToString())


@pytest.mark.parametrize(
    "message", [b"", b"\x42\x00", b"\xff", b"\x22", b"\x22\x05a", b"\x12\xff\xff\xff\xff\xff\xff", b"{}"]
)
def test_bytes_that_say_nothing_are_refused(message: bytes):
    with pytest.raises(MessageError):
        decode(message)


def test_metadata_is_decoded_with_all_its_types():
    values = {"text": "é", "number": 1.5, "yes": True, "no": False, "nothing": None}
    nested = {**values, "list": [1.0, "a", [None], {"x": {}}], "struct": {"inner": {"deep": "value"}}}
    request = pb.ProcessingRequest()
    request.request_body.body = b"x"
    ParseDict(nested, request.metadata_context.filter_metadata["envoy.lb"])
    metadata = decode(request.SerializeToString()).metadata
    assert metadata is not None
    assert metadata.namespace("envoy.lb") == nested
    assert metadata.namespace("envoy.lb.subset_hint") is None
    assert metadata.namespace("envoy.lb") == nested


def test_attributes_alone_are_not_metadata():
    request = pb.ProcessingRequest()
    request.response_body.body = b"x"
    request.attributes["envoy.filters.http.ext_proc"].fields["request.path"].string_value = "/"
    assert decode(request.SerializeToString()).metadata is None


def test_broken_metadata_is_reported_when_it_is_asked_for():
    metadata = decode(b"\x22\x03\x0a\x01x\x42\x02\x0a\x7f").metadata
    assert metadata is not None
    with pytest.raises(MessageError, match="metadata cannot be decoded"):
        metadata.namespace("envoy.lb")


# -- answers ----------------------------------------------------------------------------------------------

CHANGES = Proceed(
    set_headers=[("x-gateway-destination-endpoint", b"10.0.0.1:8000"), ("x-binary", b"\xff\x00")],
    remove_headers=["x-secret", "x-" + "long" * 40],
    metadata={"envoy.lb": {"x-gateway-destination-endpoint": "10.0.0.1:8000"}},
    clear_route_cache=True,
)


def set_header(mutation, name: str, value: bytes) -> None:
    header = mutation.set_headers.add().header
    header.key, header.raw_value = name, value


def answer(kind: str, proceed: Proceed, body: bytes | None = None) -> pb.ProcessingResponse:
    """The answer to headers or to a body outside full duplex, built by the runtime."""
    response = pb.ProcessingResponse()
    common = getattr(response, kind).response
    common.SetInParent()
    if proceed.set_headers or proceed.remove_headers:
        for name, value in proceed.set_headers:
            set_header(common.header_mutation, name, value)
        common.header_mutation.remove_headers.extend(proceed.remove_headers)
    if body:
        common.body_mutation.body = body
    elif body is not None:
        common.body_mutation.clear_body = True
    common.clear_route_cache = proceed.clear_route_cache
    if proceed.metadata:
        ParseDict(proceed.metadata, response.dynamic_metadata)
    return response


def streamed(kind: str, body: bytes, end: bool) -> pb.ProcessingResponse:
    response = pb.ProcessingResponse()
    part = getattr(response, kind).response.body_mutation.streamed_response
    part.SetInParent()
    part.body, part.end_of_stream = body, end
    return response


def trailers(kind: str) -> pb.ProcessingResponse:
    response = pb.ProcessingResponse()
    getattr(response, kind).SetInParent()
    return response


def immediate(reject: Reject) -> pb.ProcessingResponse:
    response = pb.ProcessingResponse()
    part = response.immediate_response
    part.status.code = reject.status
    for name, value in reject.headers:
        set_header(part.headers, name, value)
    part.body, part.details = reject.body, reject.details
    return response


UNCHANGED = Proceed()
REFUSE = Reject(429, b'{"error":{}}', (("content-type", b"application/json"), ("retry-after", b"1")), "full")
ANSWERS = {
    "request headers unchanged": (AnswerHeaders(False, UNCHANGED), answer("request_headers", UNCHANGED)),
    "request headers changed": (AnswerHeaders(False, CHANGES), answer("request_headers", CHANGES)),
    "response headers unchanged": (AnswerHeaders(True, UNCHANGED), answer("response_headers", UNCHANGED)),
    "response headers changed": (AnswerHeaders(True, CHANGES), answer("response_headers", CHANGES)),
    "request body unchanged": (AnswerBody(False, UNCHANGED), answer("request_body", UNCHANGED)),
    "request body with changes": (AnswerBody(False, CHANGES), answer("request_body", CHANGES)),
    "response body unchanged": (AnswerBody(True, UNCHANGED), answer("response_body", UNCHANGED)),
    "response body with changes": (AnswerBody(True, CHANGES), answer("response_body", CHANGES)),
    "request body replaced": (
        AnswerBody(False, CHANGES, b"x" * 300),
        answer("request_body", CHANGES, b"x" * 300),
    ),
    "request body cleared": (
        AnswerBody(False, UNCHANGED, b""),
        answer("request_body", UNCHANGED, b""),
    ),
    "response body replaced": (
        AnswerBody(True, UNCHANGED, b"y"),
        answer("response_body", UNCHANGED, b"y"),
    ),
    "response body cleared, with changes": (
        AnswerBody(True, CHANGES, b""),
        answer("response_body", CHANGES, b""),
    ),
    "request trailers": (AnswerTrailers(False), trailers("request_trailers")),
    "response trailers": (AnswerTrailers(True), trailers("response_trailers")),
    "rejection": (REFUSE, immediate(REFUSE)),
    "bare rejection": (Reject(503), immediate(Reject(503))),
}


@pytest.mark.parametrize(("effect", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_answer_is_byte_for_byte_what_the_runtime_writes(effect: Effect, expected: pb.ProcessingResponse):
    written = b"".join(encode(effect))
    assert pb.ProcessingResponse.FromString(written) == expected
    assert written == expected.SerializeToString(deterministic=True)


@pytest.mark.parametrize("response", [False, True], ids=["request", "response"])
@pytest.mark.parametrize("end", [False, True], ids=["more", "end"])
@pytest.mark.parametrize("size", [0, 1, 100, 110, 118, 119, 120, 127, 128, 16_383, 16_384, 61_999, 62_000])
def test_streamed_chunk_is_byte_for_byte_what_the_runtime_writes(size: int, end: bool, response: bool):
    body = b"x" * size
    expected = streamed("response_body" if response else "request_body", body, end)
    parts = encode(StreamBody(response, body, end))
    assert b"".join(parts) == expected.SerializeToString(deterministic=True)
    assert body in parts


def test_empty_header_value_is_written():
    proceed = Proceed(set_headers=[("x-empty", b"")])
    written = pb.ProcessingResponse.FromString(encode(AnswerHeaders(False, proceed))[0])
    assert written == answer("request_headers", proceed)


def test_chunk_passes_without_a_copy():
    body = b"x" * 1000
    assert encode(StreamBody(True, body, False))[1] is body


@pytest.mark.parametrize("largest", [62_000])
def test_largest_answer_stays_below_64_kib(largest: int):
    assert sum(map(len, encode(StreamBody(False, b"x" * largest, True)))) < 65_536


def test_answer_that_is_used_again_is_not_encoded_again():
    proceed = Proceed(set_headers=[("a", b"1")])
    first = encode(AnswerHeaders(False, proceed))[0]
    assert encode(AnswerHeaders(False, proceed))[0] is first
    assert encode(AnswerHeaders(True, proceed))[0] != first


def test_metadata_is_written_with_all_its_types():
    values = {
        "text": "é",
        "number": 1.5,
        "count": 3,
        "large": 2**70,
        "yes": True,
        "no": False,
        "nothing": None,
        "list": [1.0, "a", [None], {"x": {}}, ()],
        "struct": {"inner": {"deep": "value" * 100}},
        "empty": {},
    }
    written = encode(AnswerHeaders(False, Proceed(metadata={"a": values, "b": {}})))[0]
    metadata = pb.ProcessingResponse.FromString(written).dynamic_metadata
    request = pb.ProcessingRequest()
    request.request_body.body = b"x"
    for name in ("a", "b"):
        request.metadata_context.filter_metadata[name].CopyFrom(metadata.fields[name].struct_value)
    read = decode(request.SerializeToString()).metadata
    assert read is not None
    assert read.namespace("a") == {**values, "list": [1.0, "a", [None], {"x": {}}, []]}
    assert read.namespace("b") == {}


def test_text_that_utf8_cannot_say_is_written_with_question_marks():
    broken = b"caf\xe9".decode("utf-8", "surrogateescape")
    written = encode(AnswerHeaders(False, Proceed(metadata={"a": {broken: broken}})))[0]
    fields = pb.ProcessingResponse.FromString(written).dynamic_metadata.fields["a"].struct_value.fields
    assert {name: value.string_value for name, value in fields.items()} == {"caf?": "caf?"}
    reject = encode(Reject(400, details=broken))[0]
    assert pb.ProcessingResponse.FromString(reject).immediate_response.details == "caf?"


def test_field_whose_meaning_differs_between_versions_is_never_written():
    for effect, _ in ANSWERS.values():
        response = pb.ProcessingResponse.FromString(b"".join(encode(effect)))
        assert 11 not in {field.number for field, _ in response.ListFields()}
