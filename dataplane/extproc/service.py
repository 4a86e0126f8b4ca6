"""The ext_proc gRPC method: feeds messages of a stream to its session, and the session's effects back.

Owns, per server: the cap on bodies, the shared body budget, and the deadline over request phases. Streams
whose request is unanswered wait in one dict in order of arrival; since all have the same deadline, the
sweep looks only at its head, so a deadline costs a request two dict operations and no timer.

What goes wrong on a stream ends that stream alone: the peer's mistakes with grpc-status 3, a handler's with
13. The log hears of them at most once a second, the counters of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from dataplane.clock import SYSTEM_CLOCK, Clock
from dataplane.errors import RequestError
from dataplane.extproc.codec import MessageError, decode, encode
from dataplane.extproc.collected import BodyBudget
from dataplane.extproc.events import BodyRest, Effect, Modes
from dataplane.extproc.exchange import Decision, Ending, Exchange
from dataplane.extproc.http2 import GrpcStatus, StreamWriter
from dataplane.extproc.phases import ProtocolError
from dataplane.extproc.session import Session

log = logging.getLogger(__name__)

PROCESS_METHOD: Final = b"/envoy.service.ext_proc.v3.ExternalProcessor/Process"
SWEEP_INTERVAL_S: Final = 0.25
LOG_INTERVAL_S: Final = 1.0


class ProcessorLimits(msgspec.Struct, frozen=True):
    """What one server grants its streams."""

    max_body_bytes: int = 16 * 1024 * 1024
    """Largest request body collected for a decision; 413 beyond."""
    body_budget_bytes: int = 1024 * 1024 * 1024
    """Collected bytes over all streams; 503 beyond."""
    request_timeout_s: float = 300.0
    """From request headers to the decision; 504 beyond."""
    default_modes: Modes = Modes()
    """Body modes of proxies that do not say theirs."""


class StreamObserver(Protocol):
    """Told of every stream; for metrics."""

    def stream_opened(self) -> None: ...

    def stream_closed(self, code: str, seconds: float) -> None:
        """``code`` is the gRPC status by its Go name, ``Canceled`` when the peer ended the stream."""
        ...


class ExternalProcessor:
    """Stream factory for ``PROCESS_METHOD``. ``open_exchange`` is called once per stream."""

    def __init__(
        self,
        open_exchange: Callable[[], Exchange],
        limits: ProcessorLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: StreamObserver | None = None,
        on_rejection: Callable[[RequestError], None] | None = None,
    ) -> None:
        self.open_exchange = open_exchange
        self.observer = observer
        self.on_rejection = on_rejection
        """Told of requests that no exchange rejected: too large, too late, broken off, or hit by a defect."""
        self.limits = limits or ProcessorLimits()
        self.clock = clock
        self.budget = BodyBudget(self.limits.body_budget_bytes)
        self.inflight = 0
        self.defects = 0
        """Exceptions of exchanges, and answers of theirs that cannot be sent."""
        self.refused = 0
        """Streams on which the peer broke the protocol."""
        self._next_log = 0.0
        self._waiting: dict[ProcessStream, float] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self, writer: StreamWriter, headers: Sequence[tuple[bytes, bytes]]) -> ProcessStream:
        stream = ProcessStream(self, writer)
        self.inflight += 1
        return stream

    def await_answer(self, stream: ProcessStream) -> None:
        """Put a stream under the deadline."""
        self._waiting[stream] = self.clock() + self.limits.request_timeout_s
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self.sweep)

    def answered(self, stream: ProcessStream) -> None:
        """Take it out again."""
        self._waiting.pop(stream, None)

    def sweep(self) -> None:
        """Expire the streams whose deadline has passed; runs while any is waiting."""
        self._sweeper = None
        now = self.clock()
        while self._waiting:
            stream = next(iter(self._waiting))
            if self._waiting[stream] > now:
                self._sweeper = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self.sweep)
                return
            del self._waiting[stream]
            stream.expire()

    def on_defect(self, error: BaseException) -> None:
        """A handler failed where it must not; the client sees a 500 at most."""
        self.defects += 1
        if self._may_log():
            log.error("a request handler failed; %d defects so far", self.defects, exc_info=error)

    def on_refusal(self, why: str) -> None:
        """The peer broke the protocol."""
        self.refused += 1
        if self._may_log():
            log.warning("ext_proc stream refused: %s; %d so far", why, self.refused)

    def _may_log(self) -> bool:
        now = self.clock()
        if now < self._next_log:
            return False
        self._next_log = now + LOG_INTERVAL_S
        return True


class ProcessStream:
    """One stream: StreamHandler on one side, Session on the other."""

    __slots__ = ("_opened_at", "_over", "_processor", "_session", "_unanswered", "_waiting", "_writer")

    def __init__(self, processor: ExternalProcessor, writer: StreamWriter) -> None:
        self._processor = processor
        self._writer = writer
        self._waiting = False
        self._unanswered = True
        """Whether the request phase may still come to wait; once answered it never does again."""
        self._over = False
        limits = processor.limits
        self._session = Session(
            processor.open_exchange(),
            resume=self._resume,
            on_defect=processor.on_defect,
            on_rejection=processor.on_rejection,
            budget=processor.budget,
            max_body_bytes=limits.max_body_bytes,
            default_modes=limits.default_modes,
        )
        self._opened_at = 0.0
        if processor.observer is not None:
            self._opened_at = processor.clock()
            processor.observer.stream_opened()

    def on_message(self, message: bytes) -> None:
        """One ProcessingRequest."""
        if self._over:
            return
        session = self._session
        try:
            effects = session.receive(decode(message))
            if effects:
                self._send(effects)
        except (MessageError, ProtocolError) as error:
            self._processor.on_refusal(str(error))
            self._fail(GrpcStatus.INVALID_ARGUMENT, str(error))
            return
        except Exception as error:  # noqa: BLE001 - a handler's answer that cannot be sent costs its own stream
            self._break(error)
            return
        if self._unanswered:
            self._unanswered = session.is_waiting
            if self._unanswered is not self._waiting:
                self._toggle_waiting()

    def on_half_close(self) -> None:
        """Envoy needs nothing more."""
        self._finish(None, "OK")
        self._writer.finish()

    def on_cancel(self) -> None:
        """The stream or its connection is gone."""
        self._finish(None, "Canceled")

    def expire(self) -> None:
        """The deadline over the request phase has passed."""
        self._waiting = False
        self._send(self._session.expire())

    def _resume(self, outcome: Decision | BodyRest | Exception) -> None:
        if self._over:
            return
        try:
            self._send(self._session.resume(outcome))
        except Exception as error:  # noqa: BLE001 - as above, and whoever resumes has other streams to serve
            self._break(error)
            return
        if self._waiting and not self._session.is_waiting:
            self._toggle_waiting()

    def _send(self, effects: list[Effect]) -> None:
        send = self._writer.send
        for effect in effects:
            send(*encode(effect))

    def _toggle_waiting(self) -> None:
        self._waiting = not self._waiting
        if self._waiting:
            self._processor.await_answer(self)
        else:
            self._processor.answered(self)

    def _break(self, error: Exception) -> None:
        self._processor.on_defect(error)
        self._fail(GrpcStatus.INTERNAL, "the exchange failed")

    def _fail(self, status: GrpcStatus, why: str) -> None:
        self._finish(Ending.ERROR, "InvalidArgument" if status is GrpcStatus.INVALID_ARGUMENT else "Internal")
        self._writer.finish(status, why)

    def _finish(self, ending: Ending | None, code: str) -> None:
        if self._over:
            return
        self._over = True
        processor = self._processor
        processor.inflight -= 1
        processor.answered(self)
        self._session.close(ending)
        if processor.observer is not None:
            processor.observer.stream_closed(code, processor.clock() - self._opened_at)
