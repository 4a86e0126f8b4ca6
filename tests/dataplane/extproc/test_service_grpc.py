"""The same scenarios are answered identically by the server through grpcio and by a session on its own."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from dataplane.errors import NotFoundError
from dataplane.extproc.codec import encode
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor, ProcessorLimits
from tests.support.clock import ManualClock
from tests.support.exchanges import REFUSE, ROUTE, DrivenSession, RecordingExchange
from tests.support.waiting import PATIENCE_S

RECORDING = Path(__file__).with_name("vectors") / "envoy_messages.json"
STREAMS = {
    name: [base64.b64decode(entry["message"]) for entry in messages]
    for name, messages in json.loads(RECORDING.read_text()).items()
}
EXCHANGES = {
    "routes on the body": {},
    "routes on the headers": {"needs_request_body": False},
    "does not observe": {"observes_response_body": False},
    "rejects": {"decision": REFUSE},
    "fails with a request error": {"decision": NotFoundError("no such model")},
    "is defective": {"decision": ZeroDivisionError(), "response": ZeroDivisionError()},
    "replaces the response": {"response": REFUSE},
    "fails at chunks and at the end": {"on_chunk": ZeroDivisionError(), "on_end": ZeroDivisionError()},
}
MIB = 1024 * 1024
SIZES = [0, 1, 62_000, 62_001, 65_536, 4 * MIB - 1, 4 * MIB + 1]


class Peer:
    """A server on a free port, and a client of it; exchanges are handed out in order."""

    def __init__(self, channel: grpc.aio.Channel, processor: ExternalProcessor, clock: ManualClock) -> None:
        self.channel = channel
        self.processor = processor
        self.clock = clock

    def call(self) -> grpc.aio.StreamStreamCall:
        return self.channel.stream_stream(PROCESS_METHOD.decode())()

    async def settled(self) -> None:
        """Until the server knows of the end of all streams."""
        async with asyncio.timeout(PATIENCE_S):
            while self.processor.inflight:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.005)


@asynccontextmanager
async def peer(*exchanges: RecordingExchange) -> AsyncIterator[Peer]:
    waiting, clock = iter(exchanges), ManualClock()
    processor = ExternalProcessor(lambda: next(waiting), ProcessorLimits(request_timeout_s=10.0), clock)
    server = ExtProcServer(ServerOptions(host="127.0.0.1", port=0), {PROCESS_METHOD: processor})
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Peer(channel, processor, clock)
    finally:
        await server.stop()


def by_hand(exchange: RecordingExchange, messages: list[bytes]) -> list[bytes]:
    """What the session answers when nothing is between it and the messages."""
    driven = DrivenSession(exchange)
    effects = driven.receive_messages(*messages)
    driven.close()
    return [b"".join(encode(effect)) for effect in effects]


def seen_by(exchange: RecordingExchange) -> dict:
    """What an exchange was shown, comparable."""
    return {
        "requests": [(list(request.headers), request.body) for request in exchange.requests],
        "responses": [(list(r.headers), r.status, r.end_of_stream) for r in exchange.responses],
        "chunks": exchange.chunks,
        "endings": exchange.endings,
    }


async def through_server(exchange: RecordingExchange, messages: list[bytes], answers: int) -> list[bytes]:
    """What a client of the server hears, until it has heard this many answers, and then nothing more."""
    async with peer(exchange) as served:
        call = served.call()
        for message in messages:
            await call.write(message)
        heard = [await call.read() for _ in range(answers)]
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        await served.settled()
        assert served.processor.budget.used_bytes == 0
    return heard


@pytest.mark.parametrize("configured", EXCHANGES.values(), ids=EXCHANGES)
async def test_streams_of_a_real_envoy_are_answered_identically(configured: dict):
    for name, messages in STREAMS.items():
        alone, served = RecordingExchange(**configured), RecordingExchange(**configured)
        expected = by_hand(alone, messages)
        assert await through_server(served, messages, len(expected)) == expected, name
        assert seen_by(served) == seen_by(alone), name


@pytest.mark.parametrize("size", SIZES)
async def test_bodies_of_any_size_are_answered_identically_both_ways(size: int):
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]

    def chunks(kind: str) -> list[bytes]:
        pieces = [body[at : at + MIB] for at in range(0, size, MIB)]
        return [body_message(kind, piece) for piece in pieces] + [body_message(kind, b"", end=True)]

    head, answer_head = STREAMS["full duplex: body"][0], STREAMS["full duplex: body"][3]
    messages = [head, *chunks("request_body"), answer_head, *chunks("response_body")]
    expected = by_hand(RecordingExchange(), messages)
    heard = await through_server(RecordingExchange(), messages, len(expected))
    assert heard == expected
    answers = [pb.ProcessingResponse.FromString(answer) for answer in heard]
    for kind in ("request_body", "response_body"):
        parts = [
            getattr(answer, kind).response.body_mutation.streamed_response
            for answer in answers
            if answer.WhichOneof("response") == kind
        ]
        assert b"".join(part.body for part in parts) == body
        assert [part.end_of_stream for part in parts] == [False] * (len(parts) - 1) + [True]
    assert max(len(answer) for answer in heard) <= 65_536


def body_message(kind: str, body: bytes, end: bool = False) -> bytes:
    request = pb.ProcessingRequest()
    part = getattr(request, kind)
    part.body, part.end_of_stream = body, end
    return request.SerializeToString()


REQUEST = STREAMS["full duplex: no body"][0]


async def asked(exchange: RecordingExchange) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not exchange.requests:  # noqa: ASYNC110 - the exchange has no event for it
            await asyncio.sleep(0.005)


async def test_late_decision_reaches_the_client():
    exchange = RecordingExchange(decision=None)
    async with peer(exchange) as served:
        call = served.call()
        await call.write(REQUEST)
        await asked(exchange)
        exchange.resume(ROUTE)
        answer = pb.ProcessingResponse.FromString(await call.read())
        assert answer.WhichOneof("response") == "request_headers"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_client_that_leaves_while_a_decision_is_due():
    exchange = RecordingExchange(decision=None)
    async with peer(exchange) as served:
        call = served.call()
        await call.write(REQUEST)
        await asked(exchange)
        call.cancel()
        await served.settled()
        assert exchange.endings == [Ending.DISCONNECT]
        exchange.resume(ROUTE)


async def test_deadline_reaches_the_client_as_504():
    exchange = RecordingExchange(decision=None)
    async with peer(exchange) as served:
        call = served.call()
        await call.write(REQUEST)
        await asked(exchange)
        served.clock.advance(10)
        served.processor.sweep()
        answer = pb.ProcessingResponse.FromString(await call.read())
        assert answer.immediate_response.status.code == 504
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert exchange.endings == [Ending.DEADLINE]


@pytest.mark.parametrize(
    ("messages", "decision", "code", "details"),
    [
        ([b"\xff"], ROUTE, grpc.StatusCode.INVALID_ARGUMENT, "not a ProcessingRequest"),
        ([REQUEST, REQUEST], None, grpc.StatusCode.INVALID_ARGUMENT, "a second set of request headers"),
        ([REQUEST], Proceed([("x", "text")]), grpc.StatusCode.INTERNAL, "the exchange failed"),
    ],
    ids=["no protobuf", "out of order", "unsendable answer"],
)
async def test_mistakes_end_the_stream_with_a_status(messages, decision, code, details):
    broken, sound = RecordingExchange(decision), RecordingExchange()
    async with peer(broken, sound) as served:
        call = served.call()
        for message in messages:
            await call.write(message)
        assert await call.code() is code
        assert details in await call.details()
        assert broken.endings == [Ending.ERROR]

        other = served.call()
        await other.write(REQUEST)
        assert pb.ProcessingResponse.FromString(await other.read()).HasField("request_headers")
        await other.done_writing()
        assert await other.read() is grpc.aio.EOF
        await served.settled()


async def test_many_streams_at_once_keep_their_bodies_apart():
    exchanges = [RecordingExchange() for _ in range(20)]
    head = STREAMS["full duplex: body"][0]

    async def one(served: Peer, number: int) -> bytes:
        call = served.call()
        await call.write(head)
        for _ in range(5):
            await call.write(body_message("request_body", b"%d," % number))
            await asyncio.sleep(0)
        await call.write(body_message("request_body", b"", end=True))
        await call.read()
        answer = pb.ProcessingResponse.FromString(await call.read())
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return answer.request_body.response.body_mutation.streamed_response.body

    async with peer(*exchanges) as served:
        bodies = await asyncio.gather(*(one(served, number) for number in range(20)))
        await served.settled()
    assert bodies == [b"%d," % number * 5 for number in range(20)]
    assert [exchange.endings for exchange in exchanges] == [[Ending.DISCONNECT]] * 20


@pytest.mark.parametrize("decision", [ROUTE, None], ids=["decided", "waiting"])
async def test_streams_aborted_at_any_point_leave_nothing_behind(decision):
    prefixes = [messages[:end] for messages in STREAMS.values() for end in range(1, len(messages) + 1)]
    exchanges = [RecordingExchange(decision) for _ in prefixes]

    async def abort(served: Peer, messages: list[bytes]) -> None:
        call = served.call()
        for message in messages:
            await call.write(message)
        call.cancel()

    async with peer(*exchanges) as served:
        await asyncio.gather(*(abort(served, messages) for messages in prefixes))
        await served.settled()
        used = [exchange for exchange in exchanges if exchange.endings]
        assert all(len(exchange.endings) == 1 for exchange in used)
        assert {ending for exchange in used for ending in exchange.endings} <= {
            Ending.DISCONNECT,
            Ending.NATURAL,
            Ending.REJECTED,
        }
        assert served.processor.budget.used_bytes == 0
        for exchange in used:
            if exchange.requests:
                exchange.resume(REFUSE)
        served.clock.advance(1000)
        served.processor.sweep()
        assert all(len(exchange.endings) == 1 for exchange in used)
        assert (served.processor.inflight, served.processor.refused) == (0, 0)
