"""Plain values to Envoy's messages and back, and what other implementations send."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.xds import codec
from dataplane.xds.messages import (
    MAX_PROBLEM_CHARACTERS,
    MAX_PROBLEMS,
    Node,
    Problem,
    Refusal,
    Request,
    Resource,
    Response,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NODES = st.builds(Node, TEXT, TEXT, st.dictionaries(TEXT, TEXT | st.booleans() | st.none(), max_size=3))
PROBLEMS = st.lists(st.builds(Problem, TEXT, TEXT), max_size=4).map(tuple)
REFUSALS = st.builds(Refusal, TEXT.filter(bool), PROBLEMS)
REQUESTS = st.builds(
    Request, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=4).map(tuple), st.none() | NODES, st.none() | REFUSALS
)
RESOURCES = st.lists(st.builds(Resource, TEXT, st.binary(max_size=40)), max_size=4).map(tuple)
RESPONSES = st.builds(Response, TEXT, TEXT, TEXT, RESOURCES)


@given(REQUESTS)
def test_requests_survive_the_wire(request: Request) -> None:
    assert codec.decode_request(codec.encode_request(request)) == request


@given(RESPONSES)
def test_responses_survive_the_wire(response: Response) -> None:
    assert codec.decode_response(codec.encode_response(response)) == response


@given(st.binary(max_size=60))
def test_bytes_are_a_message_or_an_error_of_decoding(data: bytes) -> None:
    for decode in (codec.decode_request, codec.decode_response):
        try:
            decode(data)
        except DecodeError:
            continue


def test_bare_resources_and_refusals_with_a_message_alone_are_read() -> None:
    bare = discovery_pb2.DiscoveryResponse(
        type_url="t", resources=[any_pb2.Any(type_url="t", value=b"\x0a\x01x")]
    )
    assert codec.decode_response(bare.SerializeToString()).resources == (Resource("", b"\x0a\x01x"),)
    request = discovery_pb2.DiscoveryRequest(type_url="t")
    request.error_detail.code = 13
    assert codec.decode_request(request.SerializeToString()).refusal == Refusal("refused with code 13")


def test_what_is_told_of_mistakes_is_capped() -> None:
    errors = [ConfigError("m" * 2000, path="p" * 2000)] * (MAX_PROBLEMS + 1)
    refusal = Refusal.of(errors)
    assert len(refusal.problems) == MAX_PROBLEMS
    assert {len(part) for part in (refusal.problems[0].path, refusal.problems[0].message)} == {
        MAX_PROBLEM_CHARACTERS
    }
    assert refusal.message.endswith(f"(and {MAX_PROBLEMS} more)")
    loud = Refusal("m" * 5000, (Problem("p" * 5000, "m"),) * (MAX_PROBLEMS + 5))
    heard = codec.decode_request(codec.encode_request(Request("t", refusal=loud))).refusal
    assert heard is not None
    assert (len(heard.message), len(heard.problems)) == (MAX_PROBLEM_CHARACTERS, MAX_PROBLEMS)
    assert len(heard.problems[0].path) == MAX_PROBLEM_CHARACTERS


@given(st.binary(max_size=60))
def test_bytes_in_a_message_of_ours_come_back(payload: bytes) -> None:
    assert codec.unwrapped(codec.wrapped(payload)) == payload


def test_what_is_no_message_of_ours_is_said() -> None:
    with pytest.raises(ConfigError, match="is no message of its type"):
        codec.unwrapped(b"\xff\xff")
