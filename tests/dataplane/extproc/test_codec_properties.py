"""Whatever bytes come, the codec says what the protobuf runtime says, or MessageError, and nothing else."""

import hypothesis.strategies as st
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings

from dataplane.extproc import wire
from dataplane.extproc.codec import MessageError, decode, encode
from dataplane.extproc.events import AnswerHeaders, Proceed, Reject, StreamBody
from tests.dataplane.extproc.vectors.oracle import as_plain, as_read_by_runtime

CALMLY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
"""Messages are large data, and on a busy machine drawing them takes its time."""
NAMES = st.sampled_from([":path", ":status", "content-type", "x-request-id", "authorization", "é"]) | st.text(
    st.characters(codec="utf-8"), max_size=12
)
VALUES = st.binary(max_size=12) | st.binary(min_size=100, max_size=300)
SCALARS = (
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"), max_size=8)
)
STRUCTS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)
NAMESPACES = ["envoy.lb", "envoy.lb.subset_hint", "other"]
KINDS = [field.name for field in pb.ProcessingRequest.DESCRIPTOR.oneofs_by_name["request"].fields]


def struct_of(values: dict, struct) -> None:
    """Fill a Struct; ``ParseDict`` refuses infinities, which the wire can carry."""
    for key, value in values.items():
        set_value(struct.fields[key], value)


def set_value(target, value) -> None:
    if isinstance(value, dict):
        target.struct_value.SetInParent()
        struct_of(value, target.struct_value)
    elif isinstance(value, list):
        target.list_value.SetInParent()
        for item in value:
            set_value(target.list_value.values.add(), item)
    elif isinstance(value, bool):
        target.bool_value = value
    elif value is None:
        target.null_value = 0
    elif isinstance(value, str):
        target.string_value = value
    else:
        target.number_value = value


@st.composite
def requests(draw) -> pb.ProcessingRequest:
    """Any ProcessingRequest that a peer may send, extensions that Envoy does not use included."""
    request = pb.ProcessingRequest()
    kind = draw(st.sampled_from(KINDS))
    part = getattr(request, kind)
    part.SetInParent()
    if kind.endswith("headers"):
        fill_headers(draw, part.headers)
        part.end_of_stream = draw(st.booleans())
        if draw(st.integers(0, 9)) == 0:
            part.attributes["dead"].fields["x"].string_value = "y"
    elif kind.endswith("body"):
        part.body = draw(st.binary(max_size=40) | st.binary(min_size=100, max_size=20_000))
        part.end_of_stream = draw(st.booleans())
        if draw(st.integers(0, 9)) == 0:
            part.end_of_stream_without_message = True
    else:
        fill_headers(draw, part.trailers)
    if draw(st.booleans()):
        request.metadata_context.SetInParent()
        for name in draw(st.sets(st.sampled_from(NAMESPACES))):
            struct_of(draw(STRUCTS), request.metadata_context.filter_metadata[name])
    if draw(st.integers(0, 3)) == 0:
        struct_of(draw(STRUCTS), request.attributes["envoy.filters.http.ext_proc"])
    if draw(st.integers(0, 3)) == 0:
        config = request.protocol_config
        config.SetInParent()
        config.request_body_mode = draw(st.integers(0, 5))
        config.response_body_mode = draw(st.integers(0, 4))
        config.send_body_without_waiting_for_header_response = draw(st.booleans())
    request.observability_mode = draw(st.integers(0, 9)) == 0
    return request


def fill_headers(draw, header_map) -> None:
    for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=6)):
        header = header_map.headers.add(key=name, raw_value=value)
        if draw(st.integers(0, 9)) == 0:
            header.value = "text"


def check(message: bytes) -> None:
    """``decode`` agrees with the runtime about these bytes."""
    try:
        expected = as_read_by_runtime(message)
    except DecodeError:
        check_broken(message)
        return
    if expected is None:
        with pytest.raises(MessageError):
            decode(message)
        return
    assert as_plain(decode(message), NAMESPACES) == only_asked_for(expected)


def only_asked_for(said: dict) -> dict:
    if said["metadata"] is not None:
        said["metadata"] = {name: v for name, v in said["metadata"].items() if name in NAMESPACES}
    return said


def check_broken(message: bytes) -> None:
    """Bytes that the runtime refuses are refused, at the latest when the broken part is asked for."""
    try:
        event = decode(message)
    except MessageError:
        return
    # Only metadata and attributes are left for later, and attributes are for nobody.
    proper = b"".join(piece for number, piece in top_level(message) if number not in (8, 9))
    said = as_plain_without_metadata(event)
    expected = as_read_by_runtime(proper)
    assert expected is not None
    del expected["metadata"]
    assert said == expected
    if event.metadata is not None:
        with pytest.raises(MessageError):
            event.metadata.namespace("envoy.lb")


def as_plain_without_metadata(event) -> dict:
    metadata, event.metadata = event.metadata, None
    said = as_plain(event, [])
    event.metadata = metadata
    del said["metadata"]
    return said


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def top_level(message: bytes) -> list[tuple[int, bytes]]:
    """The fields of a message: number and encoding of each, as long as they can be told apart."""
    pieces, at = [], 0
    while at < len(message):
        start = at
        tag, at = read_varint(message, at)
        size, at = read_varint(message, at)
        if tag & 7 == 2:
            at += size
        pieces.append((tag >> 3, message[start:at]))
    return pieces


def number_field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


# -- decoding ---------------------------------------------------------------------------------------------


@settings(CALMLY, max_examples=300)
@given(requests())
def test_any_valid_message_is_read_as_the_runtime_reads_it(request):
    check(request.SerializeToString())


@settings(CALMLY, max_examples=400)
@given(requests(), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_field_order_repeats_and_unknown_fields_do_not_matter(request, random, shuffles_inside, repeats):
    pieces = top_level(request.SerializeToString())
    if shuffles_inside:
        pieces = [(number, shuffled_inside(piece, random)) for number, piece in pieces]
    if repeats and pieces:
        pieces.append(random.choice(pieces))
    unknown = [number_field(15, b"unknown"), b"\x78\x05", b"\xa2\x06\x01x"]
    parts = [piece for _, piece in pieces] + random.sample(unknown, random.randrange(3))
    random.shuffle(parts)
    check(b"".join(parts))


def shuffled_inside(piece: bytes, random) -> bytes:
    """A length-delimited field with the fields of its message in another order."""
    if piece[0] & 7 != 2:
        return piece
    _, start = read_varint(piece, 1)
    try:
        inner = [encoded for _, encoded in top_level(piece[start:])]
    except IndexError:
        return piece
    if b"".join(inner) != piece[start:]:
        return piece
    random.shuffle(inner)
    return piece[:start] + b"".join(inner)


@settings(CALMLY, max_examples=250)
@given(requests(), st.data())
def test_truncated_message_is_refused_or_still_a_message(request, data):
    message = request.SerializeToString()
    check(message[: data.draw(st.integers(0, len(message)))])


@settings(CALMLY, max_examples=250)
@given(requests(), st.data())
def test_mutated_message_is_refused_or_read_as_the_runtime_reads_it(request, data):
    message = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        if message:
            # Lengths and tags sit in front.
            at = data.draw(st.integers(0, min(len(message) - 1, 60)) | st.integers(0, len(message) - 1))
            message[at] = data.draw(st.integers(0, 255))
    check(bytes(message))


@settings(CALMLY, max_examples=300)
@given(st.sampled_from([b"", b"\x12", b"\x1a", b"\x22", b"\x2a", b"\x32"]), st.binary(max_size=60))
def test_any_bytes_are_refused_or_read_as_the_runtime_reads_them(start, rest):
    check(start + rest)


@pytest.mark.parametrize(
    "size",
    [b"\x85\x00", b"\x85\x80\x00", b"\x85\x80\x80\x80\x00", b"\x85\x80\x80\x80\x80\x80\x80\x80\x80\x00"],
    ids=["2 bytes", "3 bytes", "5 bytes", "10 bytes"],
)
def test_length_written_with_more_bytes_than_needed_is_read_as_the_runtime_reads_it(size: bytes):
    check(b"\x22" + size + b"\x0a\x03abc\x42\x00")
    check(b"\x22\x05\x0a\x03abc\x42" + size + b"\x0a\x03\x0a\x01x")
    entry = b"\x0a\x01a\x1a\x00"
    check(b"\x12\x09\x0a\x07\x0a\x05" + entry)
    check(
        b"\x12" + bytes([4 + len(size) + 4]) + b"\x0a" + bytes([2 + len(size) + 4]) + b"\x0a" + size + entry
    )


def named(number: int, *parts: bytes) -> bytes:
    return number_field(number, b"".join(parts))


ENTRY = named(1, named(1, b"x-name"), named(3, b"value"))
ODD_LAYOUTS = {
    "entry longer than its map": named(2, b"\x0a" + bytes([len(ENTRY) - 1]) + ENTRY),
    "known entry longer than its map": named(2, b"\x0a" + bytes([len(ENTRY) - 2]) + ENTRY, b"\x18\x01"),
    "map longer than its message": b"\x12\x05\x0a" + bytes([len(ENTRY)]) + ENTRY,
    "entry longer than the bytes": b"\x12\x13\x0a\x11" + ENTRY[:-2],
    "map longer than the bytes": b"\x12\x13\x0a\x11" + ENTRY,
    "unknown field in the map": named(2, named(1, named(2, b"abcd"), ENTRY)),
    "unknown field in an entry": named(2, named(1, named(1, named(1, b"a"), named(4, b"b")))),
    "unknown field instead of the value": named(2, named(1, named(1, named(1, b"x-b"), named(2, b"text")))),
    "unknown field instead of the name": named(2, named(1, named(1, named(5, b"x-c"), named(3, b"raw")))),
    "value before the name": named(2, named(1, named(1, named(3, b"raw"), named(1, b"x-d")))),
    "two values": named(2, named(1, named(1, named(1, b"x-e"), named(3, b"1"), named(3, b"2")))),
    "two names": named(2, named(1, named(1, named(1, b"x-e"), named(1, b"x-f")))),
    "empty entry": named(2, named(1, named(1))),
    "two maps": named(2, named(1, ENTRY), named(1, ENTRY)),
    "no map": named(2),
    "end alone": named(2, b"\x18\x01"),
    "end of zero": named(2, named(1, ENTRY), b"\x18\x00"),
    "end of two": named(2, named(1, ENTRY), b"\x18\x02"),
    "end before the map": named(2, b"\x18\x01", named(1, ENTRY)),
    "attributes before the end": named(2, named(1, ENTRY), named(2, named(1, b"k")), b"\x18\x01"),
    "name that is not UTF-8": named(2, named(1, named(1, named(1, b"\xff"), named(3, b"v")))),
    "configuration twice": named(2, named(1, ENTRY)) + named(11, b"\x08\x04") + named(11, b"\x10\x02"),
    "broken configuration": named(2, named(1, ENTRY)) + named(11, b"\x08"),
    "configuration before the rest": named(11, b"\x08\x04") + named(2, named(1, ENTRY)),
    "metadata twice": named(4, named(1, b"x")) + named(8, named(1, named(1, b"a"))) + named(8),
    "metadata before the rest": named(8) + named(4, named(1, b"x")),
    "two requests of a kind": named(4, named(1, b"x")) + named(8) + named(4, b"\x10\x01"),
    "two requests of different kinds": named(4, named(1, b"x")) + named(8) + named(5, named(1, b"y")),
    "observability": named(4, named(1, b"x")) + b"\x50\x01",
    "two bodies": named(4, named(1, b"x"), named(1, b"y")),
    "body after the end": named(5, b"\x10\x01", named(1, b"x")),
    "end twice": named(5, named(1, b"x"), b"\x10\x01\x10\x00"),
    "end in three bytes": named(5, named(1, b"x"), b"\x10\x81\x00"),
    "body longer than its message": b"\x22\x02\x0a\x01x",
    "body longer than the bytes": b"\x22\x03\x0a\x01",
    "body of gRPC": named(5, named(1, b"x"), b"\x18\x01\x20\x01"),
}


@pytest.mark.parametrize("message", ODD_LAYOUTS.values(), ids=ODD_LAYOUTS)
def test_odd_layout_is_read_as_the_runtime_reads_it(message: bytes):
    decode(named(2, named(1, ENTRY)))
    check(message)


@pytest.mark.parametrize(
    "tail", [b"\x42", b"\x42\x01", b"\x42\x05\x0a", b"\x42\x00\x4a", b"\x42\x00\x5a\x02\x08"]
)
@pytest.mark.parametrize(
    "start", [named(2, named(1, ENTRY)), named(5, named(1, b"x"))], ids=["headers", "body"]
)
def test_message_that_breaks_off_is_refused_at_once(start: bytes, tail: bytes):
    with pytest.raises(MessageError):
        decode(start + tail)


# -- headers that were seen before ------------------------------------------------------------------------


def header_message(*pairs: tuple[str, bytes]) -> bytes:
    request = pb.ProcessingRequest()
    request.request_headers.SetInParent()
    for name, value in pairs:
        request.request_headers.headers.headers.add(key=name, raw_value=value)
    return request.SerializeToString()


def test_secrets_are_not_kept_beyond_their_message():
    secrets = ["authorization", "cookie", "set-cookie", "x-api-key", "api-key", "proxy-authorization"]
    message = header_message(*((name, b"secret-%d" % number) for number, name in enumerate(secrets)))
    assert [name for name, _ in decode(message).headers] == secrets
    assert not any(b"secret-" in known for known in wire._known_pairs)


def test_path_with_a_query_is_not_kept_since_it_may_hold_a_key():
    decode(header_message((":path", b"/v1/models?key=secret-path")))
    assert not any(b"secret-path" in known for known in wire._known_pairs)


def test_known_headers_are_capped():
    for number in range(wire.MAX_KNOWN_PAIRS + 10):
        event = decode(header_message(("x-number", b"%d" % number)))
        assert list(event.headers) == [("x-number", b"%d" % number)]
        assert len(wire._known_pairs) <= wire.MAX_KNOWN_PAIRS


@settings(CALMLY, max_examples=100)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_headers_are_the_same_when_they_come_again(pairs):
    message = header_message(*pairs)
    first, second = decode(message), decode(message)
    assert list(first.headers) == list(second.headers) == pairs


# -- encoding ---------------------------------------------------------------------------------------------


@settings(CALMLY, max_examples=300)
@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=5),
    st.lists(NAMES, max_size=5),
    st.dictionaries(st.sampled_from(NAMESPACES), STRUCTS, max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_any_changes_are_what_the_runtime_reads(set_headers, remove, metadata, clear, response):
    written = encode(AnswerHeaders(response, Proceed(set_headers, remove, metadata, clear)))
    read = pb.ProcessingResponse.FromString(b"".join(written))
    part = read.response_headers if response else read.request_headers
    common = part.response
    changes = [(item.header.key, item.header.raw_value) for item in common.header_mutation.set_headers]
    assert changes == set_headers
    assert not any(item.HasField("append") for item in common.header_mutation.set_headers)
    assert list(common.header_mutation.remove_headers) == remove
    assert common.clear_route_cache is clear
    expected = pb.ProcessingResponse()
    struct_of(metadata, expected.dynamic_metadata)
    assert read.dynamic_metadata == expected.dynamic_metadata


@settings(CALMLY, max_examples=200)
@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_chunk_is_what_the_runtime_reads(body, end, response):
    read = pb.ProcessingResponse.FromString(b"".join(encode(StreamBody(response, body, end))))
    part = read.response_body if response else read.request_body
    assert part.response.body_mutation.WhichOneof("mutation") == "streamed_response"
    assert part.response.body_mutation.streamed_response.body == body
    assert part.response.body_mutation.streamed_response.end_of_stream is end


@settings(CALMLY, max_examples=200)
@given(st.integers(200, 599), st.binary(max_size=300), st.lists(st.tuples(NAMES, VALUES), max_size=3), NAMES)
def test_any_rejection_is_what_the_runtime_reads(status, body, headers, details):
    read = pb.ProcessingResponse.FromString(b"".join(encode(Reject(status, body, headers, details))))
    immediate = read.immediate_response
    assert read.WhichOneof("response") == "immediate_response"
    assert (immediate.status.code, immediate.body, immediate.details) == (status, body, details)
    assert [(item.header.key, item.header.raw_value) for item in immediate.headers.set_headers] == headers


def test_struct_of_the_tests_is_the_runtimes():
    built, parsed = pb.ProcessingResponse(), pb.ProcessingResponse()
    values = {"a": [1.0, {"b": None}], "c": True, "d": "e"}
    struct_of(values, built.dynamic_metadata)
    ParseDict(values, parsed.dynamic_metadata)
    assert built == parsed
