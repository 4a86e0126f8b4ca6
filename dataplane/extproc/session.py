"""One ext_proc stream as a state machine: events in, effects out, no I/O and no clock.

The rules it keeps, each of which Envoy punishes with a 500, an empty body or a hung request:

* the first answer is the one to the request headers; in full duplex it may wait for the whole body,
* full-duplex bodies are answered only by streamed chunks, of at most ``MAX_CHUNK_BYTES``,
* the end of a body can ride on data, come as an empty chunk, twice, or as trailers; it is answered once,
* outside full duplex each message gets exactly one answer,
* trailers are always answered, and nothing is after an immediate response.

A response can overtake the decision: Envoy shows replies of its own (413 for an overfull buffer, 504 for an
idle stream). The request is then void, whatever the exchange still decides.

The request body is collected only when the exchange needs it, up to a cap per stream (413 beyond) and a
budget shared by all streams of a server (503 beyond). A deadline over the request phase is the driver's to
keep: it calls ``expire``. After the decision nothing is buffered: chunks pass through one by one, those of
the response through the exchange's transform if it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataplane.errors import (
    BadRequestError,
    DeadlineExceededError,
    InternalError,
    RequestError,
)
from dataplane.extproc.bodies import (
    ONE_MESSAGE,
    UNCHANGED,
    TransformedBody,
    announced_size,
    forwarded,
    replace,
    stream,
    with_length,
    with_metadata,
)
from dataplane.extproc.collected import BodyBudget, CollectedBody, cut_short
from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    BodyRest,
    Effect,
    Event,
    Metadata,
    MetadataValues,
    Modes,
    Reject,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
)
from dataplane.extproc.exchange import (
    Decision,
    Ending,
    Exchange,
    HttpRequest,
    HttpResponse,
    Resume,
    rejection,
    too_late,
)
from dataplane.extproc.phases import (
    COLLECTING,
    DECIDING,
    ENDED,
    PASSING,
    RESPONSE_AWAITED,
    RESPONSE_COMPLETE,
    RESPONSE_HELD,
    RESPONSE_OPEN,
    RESPONSE_VOID,
    START,
    VOID,
    ProtocolError,
)
from dataplane.headers import Headers

_NO_HEADERS: Final = Headers(())

# Bound once: looking an enum's member up on its class costs as much as a call.
_NONE: Final = BodyMode.NONE
_STREAMED: Final = BodyMode.STREAMED
_BUFFERED_PARTIAL: Final = BodyMode.BUFFERED_PARTIAL
_FULL_DUPLEX_STREAMED: Final = BodyMode.FULL_DUPLEX_STREAMED


class Session:
    """Drives one exchange. ``resume`` reaches the driver when a decision comes later than its request."""

    __slots__ = (
        "_body_messages",
        "_collected",
        "_ended",
        "_exchange",
        "_headers",
        "_headers_answered",
        "_is_observer_broken",
        "_metadata",
        "_modes",
        "_on_defect",
        "_on_rejection",
        "_request_complete",
        "_request_trailers",
        "_response",
        "_response_trailers",
        "_resume",
        "_transformed",
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
        on_rejection: Callable[[RequestError], None] | None = None,
    ) -> None:
        self._exchange = exchange
        self._resume = resume
        self._on_defect = on_defect
        self._on_rejection = on_rejection
        self._collected = CollectedBody(max_body_bytes, budget)
        self._modes = default_modes
        self._headers = _NO_HEADERS
        self._metadata: Metadata | None = None
        self._body_messages = 0
        self._headers_answered = False
        self._request_complete = False
        self._request_trailers = False
        self._response = RESPONSE_AWAITED
        self._response_trailers = False
        self._transformed: TransformedBody | None = None
        self._is_observer_broken = False
        self._ended = False
        self.phase = START

    @property
    def is_waiting(self) -> bool:
        """Whether the request phase is unanswered, so that the driver's deadline applies."""
        return self.phase is DECIDING or self.phase is COLLECTING

    def receive(self, event: Event) -> list[Effect]:
        """Effects of one event. ``ProtocolError`` ends the stream: the driver is to ``close`` it."""
        return _HANDLERS[type(event)](self, event)

    # -- request ------------------------------------------------------------------------------------------

    def _on_request_headers(self, event: RequestHeaders) -> list[Effect]:
        if self.phase is VOID:
            return []
        if self.phase is not START:
            raise ProtocolError("a second set of request headers")
        if self._response is not RESPONSE_AWAITED:
            raise ProtocolError("request headers after the response has begun")
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
        self.phase = COLLECTING
        refusal = self._collected.refuse_announced(announced_size(self._headers) or 0)
        if refusal is not None:
            return self._reject(refusal)
        if mode in ONE_MESSAGE:
            self._headers_answered = True
            return [AnswerHeaders(False, UNCHANGED)]
        return []

    def _body_comes_in_time(self, mode: BodyMode) -> bool:
        """Whether the body can be seen before the decision has to be out."""
        if mode is _STREAMED:
            return self._modes.body_without_waiting
        return mode is not _NONE

    def _on_request_body(self, event: RequestBody) -> list[Effect]:
        phase = self.phase
        if phase is COLLECTING or phase is DECIDING:
            return self._collect(event)
        full_duplex = self._modes.request is _FULL_DUPLEX_STREAMED
        if phase is PASSING:
            if event.end_of_stream:
                self.phase = ENDED
            if full_duplex:
                return stream(False, event.body, event.end_of_stream)
            return [AnswerBody(False, UNCHANGED)]
        if phase is ENDED:
            return [] if full_duplex else [AnswerBody(False, UNCHANGED)]
        if phase is VOID:
            return []
        raise ProtocolError("a request body before its headers")

    def _collect(self, event: RequestBody) -> list[Effect]:
        mode = self._modes.request
        is_repeated = self._request_complete or self._request_trailers
        if is_repeated and mode is _FULL_DUPLEX_STREAMED:
            return []
        self._body_messages += 1
        if is_repeated:
            return []
        if event.metadata is not None:
            self._metadata = event.metadata
        refusal = self._collected.add(event.body)
        if refusal is not None:
            return self._reject(refusal)
        if event.end_of_stream:
            self._request_complete = True
        elif mode is _BUFFERED_PARTIAL and self._collected.size != (announced_size(self._headers) or 0):
            return self._reject(cut_short(self._collected.size))
        elif mode not in ONE_MESSAGE:
            return []
        return self._decide(self._collected.whole()) if self.phase is COLLECTING else []

    def _on_request_trailers(self, event: RequestTrailers) -> list[Effect]:
        phase = self.phase
        if phase is VOID:
            return []
        if phase is START:
            raise ProtocolError("request trailers before the headers")
        if self._request_trailers:
            raise ProtocolError("a second set of request trailers")
        self._request_trailers = True
        if phase is PASSING or phase is ENDED:
            self.phase = ENDED
            return [AnswerTrailers(False)]
        if event.metadata is not None:
            self._metadata = event.metadata
        if phase is DECIDING:
            return []
        if self._headers_answered:
            # Buffered, and no body came: the headers have gone on and nothing can route them any more.
            return self._reject(BadRequestError("a request with trailers and no body cannot be routed here"))
        return self._decide(self._collected.whole())

    def _decide(self, body: bytes | None) -> list[Effect]:
        self.phase = DECIDING
        try:
            decision: Decision | None = self._exchange.on_request(
                HttpRequest(self._headers, body, self._metadata), self._resume
            )
        except RequestError as error:
            decision = rejection(error)
        except Exception as error:  # noqa: BLE001 - a handler's defect must cost one request, not the stream
            return self._fail(error)
        # The exchange may have resumed, or its stream been closed, before it returned.
        if decision is None or self.phase is not DECIDING:
            return []
        return self._apply(decision)

    def resume(self, outcome: Decision | BodyRest | Exception) -> list[Effect]:
        """Effects of a decision that had to wait, of the exception it ended in, or of a body's last bytes.

        None when the request, or the response, has been settled in between.
        """
        if isinstance(outcome, BodyRest):
            return self._finish_response(outcome)
        if self.phase is not DECIDING:
            return []
        if isinstance(outcome, RequestError):
            outcome = rejection(outcome)
        if isinstance(outcome, Exception):
            return self._fail(outcome)
        return self._apply(outcome)

    def _fail(self, error: Exception) -> list[Effect]:
        """The handler failed to decide."""
        self._on_defect(error)
        if self.phase is not DECIDING:
            return []
        return self._reject(InternalError("the request could not be processed"), Ending.ERROR)

    def _apply(self, decision: Decision) -> list[Effect]:
        if isinstance(decision, Reject):
            return self._replace_response(decision)
        mode = self._modes.request
        is_over = self._request_complete or self._request_trailers
        self.phase = ENDED if is_over else PASSING
        is_shown = self._body_messages and (is_over or self._headers_answered)
        body = decision.body if is_shown else None
        if body is not None:
            decision = with_length(decision, self._headers, len(body))
        effects: list[Effect]
        if self._headers_answered:
            effects = [AnswerBody(False, decision, body)]
            effects += [AnswerBody(False, UNCHANGED)] * (self._body_messages - 1)
        else:
            effects = [AnswerHeaders(False, decision)]
            if mode is _FULL_DUPLEX_STREAMED:
                whole = self._collected.whole() if body is None and self._body_messages else body
                effects += forwarded(whole or b"", self._request_complete, self._body_messages)
            elif body is not None:
                effects += replace(False, body, self._body_messages)
            else:
                effects += [AnswerBody(False, UNCHANGED)] * self._body_messages
        if self._request_trailers:
            effects.append(AnswerTrailers(False))
        self._collected.release()
        return effects

    def _replace_response(self, reject: Reject, ending: Ending = Ending.REJECTED) -> list[Effect]:
        """An immediate response: the last thing that is said on this stream."""
        self._void()
        self._end(ending)
        return [reject]

    def _reject(self, error: RequestError, ending: Ending = Ending.REJECTED) -> list[Effect]:
        """What the exchange has no part in."""
        if self._on_rejection is not None:
            self._on_rejection(error)
        return self._replace_response(rejection(error), ending)

    def expire(self) -> list[Effect]:
        """The deadline over the request phase has passed: 504, unless it was settled in time."""
        if not self.is_waiting:
            return []
        error = DeadlineExceededError("the request was not decided on before its deadline")
        return self._reject(error, Ending.DEADLINE)

    # -- response -----------------------------------------------------------------------------------------

    def _begin_response(self) -> None:
        self._response = RESPONSE_OPEN
        if self.is_waiting:
            self.phase = VOID
            self._collected.release()

    def _on_response_headers(self, event: ResponseHeaders) -> list[Effect]:
        if self._response is RESPONSE_VOID:
            return []
        if self._response is not RESPONSE_AWAITED:
            raise ProtocolError("response headers after the response has begun")
        self._begin_response()
        if event.modes is not None:
            self._modes = event.modes
        status = event.headers.get(":status")
        code = int(status) if len(status) == 3 and status.isascii() and status.isdigit() else 0
        is_shown = event.end_of_stream or self._modes.response not in (_NONE, _BUFFERED_PARTIAL)
        response = HttpResponse(event.headers, code, event.end_of_stream, event.metadata, is_shown)
        try:
            decision: Decision = self._exchange.on_response_headers(response)
        except RequestError as error:
            decision = rejection(error)
        except Exception as error:  # noqa: BLE001 - a defect in an observer must not cost the client its response
            self._on_defect(error)
            decision = UNCHANGED
        if isinstance(decision, Reject):
            return self._replace_response(decision)
        if event.end_of_stream or self._modes.response is _NONE:
            self._complete_response()
        elif decision.transform is not None:
            size, mode = announced_size(event.headers), self._modes.response
            self._transformed = TransformedBody(decision.transform, size, mode, self._resume)
            decision = self._transformed.answer(decision, event.headers)
        return [AnswerHeaders(True, decision)]

    def _on_response_body(self, event: ResponseBody) -> list[Effect]:
        if self._response is not RESPONSE_OPEN:
            if self._response is RESPONSE_VOID:
                return []
            if self._response is RESPONSE_AWAITED:
                self._begin_response()
                if event.modes is not None:
                    self._modes = event.modes
        mode = self._modes.response
        full_duplex = mode is _FULL_DUPLEX_STREAMED
        if self._response is not RESPONSE_OPEN:
            rest = None if self._transformed is None else self._transformed.rest
            return [] if full_duplex else [AnswerBody(True, UNCHANGED, rest)]
        # A buffered body is one message, even when trailers or what did not fit follow.
        end = event.end_of_stream or (not full_duplex and mode in ONE_MESSAGE)
        metadata = self._observe(event.body, end)
        if self._transformed is not None:
            effects = self._transformed.pass_on(event.body, end)
            if self._transformed.later is not None:
                return self._await_rest(metadata)
            if not end and self._transformed.rest is None:
                return effects
            metadata = metadata if end else self._observe(b"", True)
            self._complete_response()
            return with_metadata(effects, metadata)
        if not end:
            return stream(True, event.body, False) if full_duplex else [AnswerBody(True, UNCHANGED)]
        self._complete_response()
        effects = stream(True, event.body, True) if full_duplex else [AnswerBody(True, UNCHANGED)]
        return with_metadata(effects, metadata)

    def _on_response_trailers(self, event: ResponseTrailers) -> list[Effect]:
        if self._response is RESPONSE_VOID:
            return []
        if self._response_trailers:
            raise ProtocolError("a second set of response trailers")
        self._response_trailers = True
        if self._response is RESPONSE_AWAITED:
            self._begin_response()
        effects: list[Effect] = []
        metadata: MetadataValues | None = None
        if self._response is RESPONSE_OPEN:
            metadata = self._observe(b"", True)
            if self._transformed is not None:
                effects = self._transformed.before_trailers()
                if self._transformed.later is not None:
                    return self._await_rest(None, AnswerTrailers(True, metadata))
            self._complete_response()
        effects.append(AnswerTrailers(True, metadata))
        return effects

    def _await_rest(self, metadata: MetadataValues | None, after: Effect | None = None) -> list[Effect]:
        """The end of the body waits for its last bytes."""
        self._response = RESPONSE_HELD
        if self._transformed is not None:
            self._transformed.wait(lambda rest: self._resume(BodyRest(rest)), metadata, after)
        return []

    def _finish_response(self, rest: BodyRest) -> list[Effect]:
        """They are there, or some of those before."""
        if self._response not in (RESPONSE_OPEN, RESPONSE_HELD) or self._transformed is None:
            return []
        effects = self._transformed.finish(rest)
        if rest.end:
            self._complete_response()
        return effects

    def _observe(self, chunk: bytes, end: bool) -> MetadataValues | None:
        if self._is_observer_broken or not self._exchange.observes_response_body:
            return None
        try:
            return self._exchange.on_response_chunk(chunk, end)
        except Exception as error:  # noqa: BLE001 - a defect in an observer must not cost the client its response
            self._is_observer_broken = True
            self._on_defect(error)
            return None

    def _complete_response(self) -> None:
        self._response = RESPONSE_COMPLETE
        self._end(Ending.NATURAL)

    # -- end ----------------------------------------------------------------------------------------------

    def close(self, ending: Ending | None = None) -> None:
        """The stream is over. Without a reason given, an incomplete exchange counts as disconnected."""
        # The driver holds the session and the session the driver's resume: let go, so that reference
        # counting frees both at once and the cyclic collector has nothing to do per request.
        self._resume = too_late
        if ending is None:
            ending = Ending.NATURAL if self._is_all_shown() else Ending.DISCONNECT
        self._void()
        self._end(ending)

    def _is_all_shown(self) -> bool:
        """Whether only requests are processed, and this one completely. Full duplex shows how it ends."""
        if self._modes.response is not _NONE:
            return False
        if self.phase is ENDED:
            return True
        return self.phase is PASSING and self._modes.request is not _FULL_DUPLEX_STREAMED

    def _void(self) -> None:
        self.phase = VOID
        self._response = RESPONSE_VOID
        self._collected.release()

    def _end(self, ending: Ending) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            self._exchange.on_end(ending)
        except Exception as error:  # noqa: BLE001 - the stream is over either way; the defect is reported
            self._on_defect(error)


_HANDLERS: Final[dict[type, Callable[[Session, object], list[Effect]]]] = {
    RequestHeaders: Session._on_request_headers,  # type: ignore[dict-item]
    RequestBody: Session._on_request_body,  # type: ignore[dict-item]
    RequestTrailers: Session._on_request_trailers,  # type: ignore[dict-item]
    ResponseHeaders: Session._on_response_headers,  # type: ignore[dict-item]
    ResponseBody: Session._on_response_body,  # type: ignore[dict-item]
    ResponseTrailers: Session._on_response_trailers,  # type: ignore[dict-item]
}
