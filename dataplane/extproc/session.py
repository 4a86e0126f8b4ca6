"""One ext_proc stream as a state machine: events in, effects out, no I/O and no clock.

The rules it keeps, each of which Envoy punishes with a 500, an empty body or a hung request:

* the first answer is the one to the request headers; in full duplex it may wait for the whole body,
* full-duplex bodies are answered only by streamed chunks, of at most ``MAX_CHUNK_BYTES``,
* the end of a body can ride on data, come as an empty chunk, twice, or as trailers; it is answered once,
* outside full duplex each message gets exactly one answer,
* trailers are always answered.

The request body is collected only when the exchange needs it, up to a cap per stream (413 beyond) and a
budget shared by all streams of a server (503 beyond). A deadline over the request phase is the driver's to
keep: it calls ``expire``. After the decision nothing is buffered: chunks pass through one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from dataplane.errors import (
    BadRequestError,
    DeadlineExceededError,
    InternalError,
    PayloadTooLargeError,
    RequestError,
    ServiceUnavailableError,
)
from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Effect,
    Event,
    Metadata,
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
from dataplane.extproc.exchange import (
    Decision,
    Ending,
    Exchange,
    HttpRequest,
    HttpResponse,
    Resume,
    rejection,
)
from dataplane.headers import Headers

MAX_CHUNK_BYTES: Final = 62_000
"""Body bytes in one answer: with its framing it stays below the 64 KiB that every proxy accepts."""

_UNCHANGED: Final = Proceed()
_NO_HEADERS: Final = Headers(())


class ProtocolError(Exception):
    """The peer sent a message that cannot come at this point of a stream."""


class RequestPhase(IntEnum):
    """How far the request is. Response events are legal in every phase."""

    START = 0
    COLLECTING = 1
    """The exchange needs the body and it is not complete."""
    DECIDING = 2
    """The exchange has the request and will resume."""
    PASSING = 3
    """Answered; what still comes of the body passes through."""
    ENDED = 4
    """Answered and complete. A repeated end is ignored."""
    REJECTED = 5


class BodyBudget:
    """Bytes that all streams of one server may hold in collected bodies."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0


class Session:
    """Drives one exchange. ``resume`` reaches the driver when a decision comes later than its request."""

    __slots__ = (
        "_answered_bodies",
        "_budget",
        "_chunks",
        "_ended",
        "_exchange",
        "_headers",
        "_max_body",
        "_metadata",
        "_modes",
        "_on_defect",
        "_request_complete",
        "_request_trailers",
        "_response_complete",
        "_resume",
        "_size",
        "phase",
    )

    def __init__(
        self,
        exchange: Exchange,
        *,
        resume: Resume,
        on_defect: Callable[[BaseException], None],
        budget: BodyBudget,
        max_body_bytes: int,
        default_modes: Modes,
    ) -> None:
        self._exchange = exchange
        self._resume = resume
        self._on_defect = on_defect
        self._budget = budget
        self._max_body = max_body_bytes
        self._modes = default_modes
        self._headers = _NO_HEADERS
        self._metadata: Metadata | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._answered_bodies = 0
        self._request_complete = False
        self._request_trailers = False
        self._response_complete = False
        self._ended = False
        self.phase = RequestPhase.START

    @property
    def is_waiting(self) -> bool:
        """Whether the request phase is unanswered, so that the driver's deadline applies."""
        return self.phase in (RequestPhase.COLLECTING, RequestPhase.DECIDING)

    def receive(self, event: Event) -> list[Effect]:
        """Effects of one event. ``ProtocolError`` ends the stream."""
        return _HANDLERS[type(event)](self, event)

    # -- request ------------------------------------------------------------------------------------------

    def _on_request_headers(self, event: RequestHeaders) -> list[Effect]:
        if self.phase is not RequestPhase.START:
            raise ProtocolError("a second set of request headers")
        if event.modes is not None:
            self._modes = event.modes
        self._headers = event.headers
        self._metadata = event.metadata
        mode = self._modes.request
        if event.end_of_stream:
            self._request_complete = True
            return self._decide(b"")
        if not self._exchange.needs_request_body or not self._body_comes_in_time(mode):
            return self._decide(None)
        self.phase = RequestPhase.COLLECTING
        if self._announced_size() > self._max_body:
            return self._reject(self._too_large())
        if mode in (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL):
            return [AnswerHeaders(False, _UNCHANGED)]
        return []

    def _body_comes_in_time(self, mode: BodyMode) -> bool:
        """Whether the body can be seen before the decision has to be out."""
        if mode is BodyMode.STREAMED:
            return self._modes.body_without_waiting
        return mode is not BodyMode.NONE

    def _announced_size(self) -> int:
        length = self._headers.get("content-length")
        return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0

    def _on_request_body(self, event: RequestBody) -> list[Effect]:
        phase = self.phase
        if event.metadata is not None:
            self._metadata = event.metadata
        if phase is RequestPhase.COLLECTING or phase is RequestPhase.DECIDING:
            return self._collect(event)
        if phase is RequestPhase.PASSING:
            if self._modes.request is BodyMode.FULL_DUPLEX_STREAMED:
                if event.end_of_stream:
                    self._request_complete = True
                    self.phase = RequestPhase.ENDED
                return _stream(False, event.body, event.end_of_stream)
            return [AnswerBody(False, _UNCHANGED)]
        if phase is RequestPhase.START:
            raise ProtocolError("a request body before its headers")
        if phase is RequestPhase.ENDED and self._modes.request is not BodyMode.FULL_DUPLEX_STREAMED:
            return [AnswerBody(False, _UNCHANGED)]
        return []

    def _collect(self, event: RequestBody) -> list[Effect]:
        if self._request_complete:
            return []
        body = event.body
        self._answered_bodies += 1
        if body:
            self._chunks.append(body)
            self._size += len(body)
            self._budget.used_bytes += len(body)
            if self._size > self._max_body:
                return self._reject(self._too_large())
            if self._budget.used_bytes > self._budget.limit_bytes:
                return self._reject(
                    ServiceUnavailableError(
                        "too many request bodies are being received at once; try again",
                        dropped_reason="rejected-saturated",
                    )
                )
        if event.end_of_stream:
            self._request_complete = True
        elif self._modes.request is BodyMode.BUFFERED_PARTIAL and self._size < self._announced_size():
            return self._reject(self._too_large())
        elif self._modes.request not in (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL):
            return []
        return self._decide_on_body() if self.phase is RequestPhase.COLLECTING else []

    def _on_request_trailers(self, event: RequestTrailers) -> list[Effect]:
        if event.metadata is not None:
            self._metadata = event.metadata
        phase = self.phase
        if phase is RequestPhase.START:
            raise ProtocolError("request trailers before the headers")
        if phase is RequestPhase.REJECTED:
            return []
        if phase is RequestPhase.PASSING or phase is RequestPhase.ENDED:
            self.phase = RequestPhase.ENDED
            return [AnswerTrailers(False)]
        if self._request_trailers:
            raise ProtocolError("a second set of request trailers")
        self._request_trailers = True
        if (
            self._modes.request in (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)
            and not self._answered_bodies
        ):
            return self._reject(BadRequestError("a request with trailers and no body cannot be routed here"))
        return self._decide_on_body() if phase is RequestPhase.COLLECTING else []

    def _decide_on_body(self) -> list[Effect]:
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks = [body] if body else []
        return self._decide(body)

    def _decide(self, body: bytes | None) -> list[Effect]:
        self.phase = RequestPhase.DECIDING
        try:
            decision = self._exchange.on_request(
                HttpRequest(self._headers, body, self._metadata), self._resume
            )
        except RequestError as error:
            return self._apply(rejection(error))
        except Exception as error:  # noqa: BLE001 - a handler's defect must cost one request, not the stream
            self._on_defect(error)
            return self._apply(rejection(InternalError("the request could not be processed")))
        return [] if decision is None else self._apply(decision)

    def resume(self, decision: Decision) -> list[Effect]:
        """Effects of a decision that had to wait; none when the exchange has ended in between."""
        return self._apply(decision) if self.phase is RequestPhase.DECIDING and not self._ended else []

    def _apply(self, decision: Decision) -> list[Effect]:
        if isinstance(decision, Reject):
            self.phase = RequestPhase.REJECTED
            self._release_body()
            self._end(Ending.REJECTED)
            return [decision]
        mode = self._modes.request
        self.phase = RequestPhase.ENDED if self._request_complete else RequestPhase.PASSING
        effects: list[Effect]
        if mode in (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL) and self._answered_bodies:
            effects = [AnswerBody(False, decision)]
        else:
            effects = [AnswerHeaders(False, decision)]
            if mode is BodyMode.FULL_DUPLEX_STREAMED:
                self._forward_collected(effects)
            elif mode is BodyMode.STREAMED:
                effects += [AnswerBody(False, _UNCHANGED)] * self._answered_bodies
        if self._request_trailers:
            self.phase = RequestPhase.ENDED
            effects.append(AnswerTrailers(False))
        self._release_body()
        return effects

    def _forward_collected(self, effects: list[Effect]) -> None:
        """The collected body as streamed chunks; the end is marked iff a chunk, not trailers, brought it."""
        if not self._answered_bodies:
            return
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if body or self._request_complete:
            effects += _stream(False, body, self._request_complete)

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"the request body is larger than the {self._max_body} bytes allowed")

    def _reject(self, error: RequestError) -> list[Effect]:
        return self._apply(rejection(error))

    def _release_body(self) -> None:
        self._budget.used_bytes -= self._size
        self._size = 0
        self._chunks = []

    def expire(self) -> list[Effect]:
        """The deadline over the request phase has passed: 504, unless it was answered in time."""
        if not self.is_waiting:
            return []
        self._end(Ending.DEADLINE)
        return self._reject(DeadlineExceededError("the request was not decided on before its deadline"))

    # -- response -----------------------------------------------------------------------------------------

    def _on_response_headers(self, event: ResponseHeaders) -> list[Effect]:
        if event.modes is not None:
            self._modes = event.modes
        status = event.headers.get(":status")
        response = HttpResponse(
            event.headers,
            int(status) if len(status) == 3 and status.isascii() and status.isdigit() else 0,
            event.end_of_stream,
            event.metadata,
        )
        decision: Decision
        try:
            decision = self._exchange.on_response_headers(response)
        except RequestError as error:
            decision = rejection(error)
        except Exception as error:  # noqa: BLE001 - a defect in an observer must not cost the client its response
            self._on_defect(error)
            decision = _UNCHANGED
        if isinstance(decision, Reject):
            self._response_complete = True
            self._end(Ending.REJECTED)
            return [decision]
        if event.end_of_stream or self._modes.response is BodyMode.NONE:
            self._complete_response()
        return [AnswerHeaders(True, decision)]

    def _on_response_body(self, event: ResponseBody) -> list[Effect]:
        full_duplex = self._modes.response is BodyMode.FULL_DUPLEX_STREAMED
        if self._response_complete:
            return [] if full_duplex else [AnswerBody(True, _UNCHANGED)]
        end = event.end_of_stream
        if self._exchange.observes_response_body:
            self._observe(event.body, end)
        if end:
            self._complete_response()
        if full_duplex:
            return _stream(True, event.body, end)
        return [AnswerBody(True, _UNCHANGED)]

    def _on_response_trailers(self, event: ResponseTrailers) -> list[Effect]:
        if not self._response_complete:
            if self._exchange.observes_response_body:
                self._observe(b"", True)
            self._complete_response()
        return [AnswerTrailers(True)]

    def _observe(self, chunk: bytes, end: bool) -> None:
        try:
            self._exchange.on_response_chunk(chunk, end)
        except Exception as error:  # noqa: BLE001 - a defect in an observer must not cost the client its response
            self._on_defect(error)

    def _complete_response(self) -> None:
        self._response_complete = True
        self._end(Ending.NATURAL)

    # -- end ----------------------------------------------------------------------------------------------

    def close(self, ending: Ending | None = None) -> None:
        """The stream is over. Without a reason given, an incomplete exchange counts as disconnected."""
        # The driver holds the session and the session the driver's resume: let go, so that reference
        # counting frees both at once and the cyclic collector has nothing to do per request.
        self._resume = _too_late
        if self._ended:
            return
        self._release_body()
        if ending is None:
            request_only = self.phase in (RequestPhase.PASSING, RequestPhase.ENDED) and (
                self._modes.response is BodyMode.NONE
            )
            ending = Ending.NATURAL if request_only else Ending.DISCONNECT
        self._end(ending)

    def _end(self, ending: Ending) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            self._exchange.on_end(ending)
        except Exception as error:  # noqa: BLE001 - the stream is over either way; the defect is reported
            self._on_defect(error)


def _too_late(decision: Decision) -> None:
    """Takes a decision that comes after the stream has gone."""


def _stream(response: bool, body: bytes, end: bool) -> list[Effect]:
    """Body bytes as chunks of at most ``MAX_CHUNK_BYTES``; an empty body is one empty chunk."""
    size = len(body)
    if size <= MAX_CHUNK_BYTES:
        return [StreamBody(response, body, end)]
    last = (size - 1) // MAX_CHUNK_BYTES * MAX_CHUNK_BYTES
    return [
        StreamBody(response, body[at : at + MAX_CHUNK_BYTES], end and at == last)
        for at in range(0, size, MAX_CHUNK_BYTES)
    ]


_HANDLERS: Final[dict[type, Callable[[Session, object], list[Effect]]]] = {
    RequestHeaders: Session._on_request_headers,  # type: ignore[dict-item]
    RequestBody: Session._on_request_body,  # type: ignore[dict-item]
    RequestTrailers: Session._on_request_trailers,  # type: ignore[dict-item]
    ResponseHeaders: Session._on_response_headers,  # type: ignore[dict-item]
    ResponseBody: Session._on_response_body,  # type: ignore[dict-item]
    ResponseTrailers: Session._on_response_trailers,  # type: ignore[dict-item]
}
