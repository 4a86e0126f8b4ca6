"""Dynamic metadata that is set when a response body has ended, in every body mode."""

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.json_format import MessageToDict

from dataplane.extproc.codec import encode
from dataplane.extproc.events import AnswerBody, BodyMode, Effect, Modes, Proceed
from tests.support.exchanges import (
    DrivenSession,
    HoldingTransform,
    RecordingExchange,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
)

VALUES = {"envoy.lb": {"cost": 10}}


def read(effects: list[Effect]) -> list[pb.ProcessingResponse]:
    """The answers as Envoy reads them."""
    return [pb.ProcessingResponse.FromString(b"".join(encode(effect))) for effect in effects]


def metadata(effects: list[Effect]) -> list[dict]:
    """The dynamic metadata of each answer."""
    return [MessageToDict(answer.dynamic_metadata) for answer in read(effects)]


def begun(mode: BodyMode, exchange: RecordingExchange) -> DrivenSession:
    """A session whose response body is to come."""
    driven = DrivenSession(exchange)
    driven.receive(request_headers(end=True, modes=Modes(BodyMode.FULL_DUPLEX_STREAMED, mode)))
    driven.receive(response_headers())
    return driven


@pytest.mark.parametrize("mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.STREAMED])
def test_it_comes_with_the_last_chunk_and_once(mode: BodyMode):
    driven = begun(mode, RecordingExchange(metadata=VALUES))
    assert metadata(driven.receive(response_body(b"one"))) == [{}]
    assert metadata(driven.receive(response_body(b"two", end=True))) == [VALUES]
    assert all(found == {} for found in metadata(driven.receive(response_body(b"", end=True))))


@pytest.mark.parametrize("mode", [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL])
def test_it_comes_with_the_only_message_of_a_buffered_body(mode: BodyMode):
    driven = begun(mode, RecordingExchange(metadata=VALUES))
    assert metadata(driven.receive(response_body(b"whole", end=True))) == [VALUES]


def test_a_long_last_chunk_is_cut_and_the_last_piece_carries_it():
    driven = begun(BodyMode.FULL_DUPLEX_STREAMED, RecordingExchange(metadata=VALUES))
    effects = driven.receive(response_body(b"x" * 150_000, end=True))
    assert metadata(effects) == [{}, {}, VALUES]
    pieces = [answer.response_body.response.body_mutation.streamed_response for answer in read(effects)]
    assert b"".join(piece.body for piece in pieces) == b"x" * 150_000
    assert [piece.end_of_stream for piece in pieces] == [False, False, True]


def test_it_comes_with_the_trailers_when_they_bring_the_end():
    driven = begun(BodyMode.FULL_DUPLEX_STREAMED, RecordingExchange(metadata=VALUES))
    assert metadata(driven.receive(response_body(b"one"))) == [{}]
    effects = driven.receive(response_trailers())
    assert metadata(effects) == [VALUES]
    assert read(effects)[0].WhichOneof("response") == "response_trailers"


@pytest.mark.parametrize("mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.STREAMED, BodyMode.BUFFERED])
def test_it_comes_with_a_transformed_body_as_well(mode: BodyMode):
    exchange = RecordingExchange(response=Proceed(transform=HoldingTransform(2)), metadata=VALUES)
    driven = begun(mode, exchange)
    (effect,) = driven.receive(response_body(b"a", end=True))
    assert metadata([effect]) == [VALUES]
    (answer,) = read([effect])
    mutation = answer.response_body.response.body_mutation
    sent = mutation.streamed_response.body if mode is BodyMode.FULL_DUPLEX_STREAMED else mutation.body
    assert sent == b"AAAAA"


def test_without_values_nothing_is_said():
    for nothing in (None, {}):
        driven = begun(BodyMode.STREAMED, RecordingExchange(metadata=nothing))
        (effect,) = driven.receive(response_body(b"x", end=True))
        assert metadata([effect]) == [{}]
        assert isinstance(effect, AnswerBody)


def test_the_answer_for_bodies_without_values_stays_as_it_is():
    driven = begun(BodyMode.STREAMED, RecordingExchange(metadata=VALUES))
    driven.receive(response_body(b"x", end=True))
    other = begun(BodyMode.STREAMED, RecordingExchange())
    assert metadata(other.receive(response_body(b"x", end=True))) == [{}]
