"""The Process method with a writer that keeps what it is given: answers, deadlines, mistakes, ends."""

import gc
import json
import logging
import weakref

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from dataplane.errors import NotFoundError
from dataplane.extproc.events import BodyMode, Modes, Proceed, Reject
from dataplane.extproc.exchange import Ending
from dataplane.extproc.service import (
    LOG_INTERVAL_S,
    PROCESS_METHOD,
    SWEEP_INTERVAL_S,
    ExternalProcessor,
    ProcessorLimits,
)
from tests.support.clock import ManualClock
from tests.support.exchanges import PASS, ROUTE, RecordingExchange

LIMITS = ProcessorLimits(request_timeout_s=10.0)


class KeepingWriter:
    """A StreamWriter that decodes what is sent with the protobuf runtime."""

    def __init__(self) -> None:
        self.sent: list[pb.ProcessingResponse] = []
        self.finished: list[tuple[int, str]] = []

    def send(self, *parts: bytes) -> None:
        assert not self.finished
        self.sent.append(pb.ProcessingResponse.FromString(b"".join(parts)))

    def finish(self, status: int = 0, message: str = "") -> None:
        self.finished.append((int(status), message))

    @property
    def is_open(self) -> bool:
        return not self.finished

    @property
    def buffered_bytes(self) -> int:
        return 0

    @property
    def kinds(self) -> list[str | None]:
        return [response.WhichOneof("response") for response in self.sent]


def message(kind: str, body: bytes = b"", end: bool = False, modes: bool = False) -> bytes:
    request = pb.ProcessingRequest()
    part = getattr(request, kind)
    part.SetInParent()
    if kind == "request_headers":
        part.headers.headers.add(key=":method", raw_value=b"POST")
    if kind == "response_headers":
        part.headers.headers.add(key=":status", raw_value=b"200")
    if not kind.endswith("trailers"):
        part.end_of_stream = end
    if kind.endswith("body"):
        part.body = body
    if modes:
        request.protocol_config.request_body_mode = 4
        request.protocol_config.response_body_mode = 4
    return request.SerializeToString()


HEADERS = message("request_headers", modes=True)
ONLY_HEADERS = message("request_headers", end=True, modes=True)


class Service:
    """A processor on a manual clock, and its streams."""

    def __init__(self, *exchanges: RecordingExchange, limits: ProcessorLimits = LIMITS) -> None:
        self.clock = ManualClock()
        self.exchanges = list(exchanges)
        self.waiting_exchanges = iter(exchanges)
        self.processor = ExternalProcessor(lambda: next(self.waiting_exchanges), limits, self.clock)

    def open(self, *messages: bytes):
        writer = KeepingWriter()
        stream = self.processor(writer, ())
        for each in messages:
            stream.on_message(each)
        return stream, writer


# -- a stream from end to end -----------------------------------------------------------------------------


def test_method_is_envoys():
    service = pb.DESCRIPTOR.services_by_name["ExternalProcessor"]
    assert PROCESS_METHOD.decode() == f"/{service.full_name}/Process"
    assert service.methods_by_name["Process"].input_type.full_name.endswith("ProcessingRequest")


async def test_exchange_from_headers_to_end():
    exchange = RecordingExchange()
    service = Service(exchange)
    stream, writer = service.open(
        HEADERS,
        message("request_body", b"body"),
        message("request_body", end=True),
        message("response_headers"),
        message("response_body", b"answer"),
        message("response_body", end=True),
    )
    assert writer.kinds == [
        "request_headers",
        "request_body",
        "response_headers",
        "response_body",
        "response_body",
    ]
    assert writer.sent[1].request_body.response.body_mutation.streamed_response.body == b"body"
    assert service.processor.inflight == 1
    stream.on_half_close()
    assert writer.finished == [(0, "")]
    assert service.processor.inflight == 0
    assert exchange.endings == [Ending.NATURAL]
    assert exchange.chunks == [(b"answer", False), (b"", True)]


async def test_default_modes_are_those_of_the_limits():
    limits = ProcessorLimits(default_modes=Modes(BodyMode.NONE, BodyMode.NONE))
    exchange = RecordingExchange()
    _, writer = Service(exchange, limits=limits).open(message("request_headers"))
    assert writer.kinds == ["request_headers"]
    assert exchange.requests[0].body is None


async def test_cap_of_the_limits_applies():
    exchange = RecordingExchange()
    service = Service(exchange, limits=ProcessorLimits(max_body_bytes=3))
    _, writer = service.open(HEADERS, message("request_body", b"four"))
    assert [answer.immediate_response.status.code for answer in writer.sent] == [413]


async def test_budget_is_shared_by_the_streams_of_a_processor():
    service = Service(
        RecordingExchange(), RecordingExchange(), limits=ProcessorLimits(body_budget_bytes=1000)
    )
    first, _ = service.open(HEADERS, message("request_body", b"x" * 900))
    _, writer = service.open(HEADERS, message("request_body", b"x" * 100))
    assert [answer.immediate_response.status.code for answer in writer.sent] == [503]
    first.on_cancel()
    assert service.processor.budget.used_bytes == 0


async def test_late_decision_is_sent_outside_of_a_message():
    exchange = RecordingExchange(decision=None)
    _, writer = Service(exchange).open(ONLY_HEADERS)
    assert writer.sent == []
    exchange.resume(ROUTE)
    assert writer.kinds == ["request_headers"]


@pytest.mark.parametrize("how", ["on_cancel", "on_half_close"])
async def test_decision_after_the_stream_is_gone_is_dropped(how: str):
    exchange = RecordingExchange(decision=None)
    service = Service(exchange)
    stream, writer = service.open(ONLY_HEADERS)
    getattr(stream, how)()
    exchange.resume(ROUTE)
    stream.on_message(message("request_body", end=True))
    assert writer.sent == []
    assert exchange.endings == [Ending.DISCONNECT]
    assert service.processor.inflight == 0


async def test_cancelled_stream_is_not_finished_a_second_time():
    service = Service(RecordingExchange())
    stream, writer = service.open(HEADERS)
    stream.on_cancel()
    stream.on_cancel()
    assert writer.finished == []
    assert service.processor.inflight == 0


@pytest.mark.parametrize("decision", [ROUTE, None, Reject(429)], ids=["answered", "waiting", "rejected"])
async def test_finished_exchange_is_freed_without_the_cyclic_collector(decision):
    class Forgetful(RecordingExchange):
        def on_request(self, request, resume):
            return decision

    gc.disable()
    try:
        processor = ExternalProcessor(Forgetful, LIMITS, ManualClock())
        stream = processor(KeepingWriter(), ())
        stream.on_message(ONLY_HEADERS)
        exchange = weakref.ref(stream._session._exchange)
        stream.on_half_close()
        del stream
        assert exchange() is None
    finally:
        gc.enable()


# -- mistakes of the peer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"\xff\xff", "not a ProcessingRequest"),
        (b"", "a ProcessingRequest without a request"),
        (message("request_headers"), "a second set of request headers"),
    ],
    ids=["no protobuf", "nothing said", "out of order"],
)
async def test_stream_that_breaks_the_protocol_ends_with_the_reason(bad: bytes, why: str):
    exchange = RecordingExchange(decision=None)
    service = Service(exchange)
    stream, writer = service.open(ONLY_HEADERS, bad)
    ((status, reason),) = writer.finished
    assert status == 3
    assert why in reason
    assert exchange.endings == [Ending.ERROR]
    assert (service.processor.inflight, service.processor.refused, service.processor.defects) == (0, 1, 0)
    stream.on_message(HEADERS)
    stream.on_half_close()
    stream.on_cancel()
    exchange.resume(ROUTE)
    assert writer.sent == []
    assert service.processor.inflight == 0


async def test_stream_without_a_message_ends_quietly():
    exchange = RecordingExchange()
    stream, writer = Service(exchange).open()
    stream.on_half_close()
    assert writer.finished == [(0, "")]
    assert exchange.endings == [Ending.DISCONNECT]


# -- defects of exchanges ---------------------------------------------------------------------------------


async def test_defect_is_counted_and_answered_with_500():
    exchange = RecordingExchange(decision=ZeroDivisionError())
    service = Service(exchange)
    _, writer = service.open(ONLY_HEADERS)
    assert [answer.immediate_response.status.code for answer in writer.sent] == [500]
    assert (service.processor.defects, service.processor.refused) == (1, 0)


async def test_request_error_is_no_defect():
    service = Service(RecordingExchange(decision=NotFoundError("no such model")))
    _, writer = service.open(ONLY_HEADERS)
    assert json.loads(writer.sent[0].immediate_response.body)["error"]["code"] == "model_not_found"
    assert service.processor.defects == 0


UNSENDABLE = Proceed(set_headers=[("x-a", "text instead of bytes")])


async def test_answer_that_cannot_be_encoded_costs_its_stream():
    exchange = RecordingExchange(decision=UNSENDABLE)
    service = Service(exchange)
    _, writer = service.open(ONLY_HEADERS)
    assert writer.finished == [(13, "the exchange failed")]
    assert exchange.endings == [Ending.ERROR]
    assert (service.processor.defects, service.processor.inflight) == (1, 0)


async def test_late_answer_that_cannot_be_encoded_does_not_reach_who_resumes():
    exchange = RecordingExchange(decision=None)
    service = Service(exchange)
    _, writer = service.open(ONLY_HEADERS)
    exchange.resume(UNSENDABLE)
    assert writer.finished == [(13, "the exchange failed")]
    assert (service.processor.defects, service.processor.inflight) == (1, 0)


async def test_exchange_that_cannot_be_made_is_not_in_flight():
    def refuse():
        raise RuntimeError("no exchange")

    processor = ExternalProcessor(refuse, LIMITS, ManualClock())
    with pytest.raises(RuntimeError, match="no exchange"):
        processor(KeepingWriter(), ())
    assert processor.inflight == 0


async def test_log_hears_of_mistakes_at_most_once_a_second(caplog):
    service = Service(*(RecordingExchange(decision=ValueError(str(number))) for number in range(6)))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            service.open(ONLY_HEADERS)
        service.clock.advance(LOG_INTERVAL_S)
        service.open(b"\xff")
    defect, refusal = (record.message for record in caplog.records)
    assert defect == "a request handler failed; 1 defects so far"
    assert refusal.startswith("ext_proc stream refused: not a ProcessingRequest")
    assert (service.processor.defects, service.processor.refused) == (3, 1)


# -- observers --------------------------------------------------------------------------------------------


class Watcher:
    """Notes what it is told of streams."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed: list[tuple[str, float]] = []

    def stream_opened(self) -> None:
        self.opened += 1

    def stream_closed(self, code: str, seconds: float) -> None:
        self.closed.append((code, seconds))


@pytest.mark.parametrize(
    ("messages", "end", "code"),
    [
        ([ONLY_HEADERS], "on_half_close", "OK"),
        ([], "on_half_close", "OK"),
        ([ONLY_HEADERS], "on_cancel", "Canceled"),
        ([b"\xff"], "on_cancel", "InvalidArgument"),
        ([HEADERS, message("request_body", end=True)], "on_cancel", "Internal"),
    ],
    ids=["ended", "empty", "cancelled", "broken by the peer", "broken by the exchange"],
)
async def test_observer_hears_of_every_stream_once(messages: list[bytes], end: str, code: str):
    watcher, clock = Watcher(), ManualClock()
    decision = UNSENDABLE if code == "Internal" else ROUTE
    processor = ExternalProcessor(lambda: RecordingExchange(decision), LIMITS, clock, watcher)
    stream = processor(KeepingWriter(), ())
    assert watcher.opened == 1
    clock.advance(2.5)
    for each in messages:
        stream.on_message(each)
    getattr(stream, end)()
    stream.on_half_close()
    stream.on_cancel()
    assert watcher.closed == [(code, 2.5)]


async def test_observer_does_not_hear_of_a_stream_without_an_exchange():
    def refuse():
        raise RuntimeError("no exchange")

    watcher = Watcher()
    processor = ExternalProcessor(refuse, LIMITS, ManualClock(), watcher)
    with pytest.raises(RuntimeError):
        processor(KeepingWriter(), ())
    assert (watcher.opened, watcher.closed) == (0, [])


# -- deadlines --------------------------------------------------------------------------------------------


async def test_deadline_answers_with_504_and_only_those_who_wait():
    early, late, answered = RecordingExchange(None), RecordingExchange(None), RecordingExchange()
    service = Service(early, answered, late)
    _, early_writer = service.open(ONLY_HEADERS)
    _, answered_writer = service.open(ONLY_HEADERS)
    service.clock.advance(6)
    _, late_writer = service.open(HEADERS, message("request_body", b"x"))
    service.clock.advance(3.9)
    service.processor.sweep()
    assert early_writer.sent == []
    service.clock.advance(0.1)
    service.processor.sweep()
    assert [answer.immediate_response.status.code for answer in early_writer.sent] == [504]
    assert early.endings == [Ending.DEADLINE]
    assert late_writer.sent == []
    service.clock.advance(6)
    service.processor.sweep()
    assert [answer.immediate_response.status.code for answer in late_writer.sent] == [504]
    assert answered_writer.kinds == ["request_headers"]
    assert answered.endings == []
    early.resume(ROUTE)
    assert len(early_writer.sent) == 1


@pytest.mark.parametrize("how", ["answer", "body arrives", "cancel", "overtaken", "refusal"])
async def test_settled_request_is_no_longer_under_the_deadline(how: str):
    exchange = RecordingExchange(decision=ROUTE if how == "body arrives" else None)
    service = Service(exchange)
    stream, writer = service.open(HEADERS)
    if how == "answer":
        stream.on_message(message("request_body", end=True))
        exchange.resume(ROUTE)
    elif how == "body arrives":
        stream.on_message(message("request_body", end=True))
    elif how == "cancel":
        stream.on_cancel()
    elif how == "overtaken":
        stream.on_message(message("response_headers", end=True))
    else:
        stream.on_message(b"\xff")
    before = list(writer.sent)
    service.clock.advance(1000)
    service.processor.sweep()
    assert writer.sent == before
    assert Ending.DEADLINE not in exchange.endings


async def test_stream_may_end_while_others_expire():
    """An exchange that is told of its deadline may resume another one."""
    second = RecordingExchange(None)

    class Resuming(RecordingExchange):
        def on_end(self, ending):
            super().on_end(ending)
            second.resume(PASS)

    service = Service(Resuming(None), second)
    _, first_writer = service.open(ONLY_HEADERS)
    _, second_writer = service.open(ONLY_HEADERS)
    service.clock.advance(11)
    service.processor.sweep()
    assert first_writer.kinds == ["immediate_response"]
    assert second_writer.kinds == ["request_headers"]


async def test_sweep_runs_by_itself_while_anybody_waits(monkeypatch):
    calls = []
    service = Service(RecordingExchange(None), RecordingExchange(None), RecordingExchange(None))
    loop = LoopOfTimers(calls)
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    first, _ = service.open(ONLY_HEADERS)
    service.open(ONLY_HEADERS)
    assert calls == [(SWEEP_INTERVAL_S, service.processor.sweep)]
    service.processor.sweep()
    assert len(calls) == 2
    first.on_cancel()
    service.clock.advance(11)
    service.processor.sweep()
    assert len(calls) == 2
    service.open(ONLY_HEADERS)
    assert len(calls) == 3


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
async def test_sweep_stops_when_all_are_answered(monkeypatch, is_late: bool):
    calls = []
    exchange = RecordingExchange(None if is_late else ROUTE)
    service = Service(exchange)
    loop = LoopOfTimers(calls)
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    service.open(HEADERS, message("request_body", end=True))
    if is_late:
        exchange.resume(ROUTE)
    assert len(calls) == 1
    service.processor.sweep()
    assert len(calls) == 1


class LoopOfTimers:
    """Notes what is to be called later."""

    def __init__(self, calls: list) -> None:
        self.calls = calls

    def call_later(self, delay, callback):
        self.calls.append((delay, callback))
        return object()
