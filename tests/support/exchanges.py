"""ext_proc for tests: events, an exchange that writes everything down, a session driven by hand."""

from __future__ import annotations

from dataplane.extproc.codec import decode
from dataplane.extproc.collected import BodyBudget
from dataplane.extproc.events import (
    BodyRest,
    Effect,
    Event,
    Metadata,
    MetadataValues,
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
from dataplane.extproc.exchange import Decision, Ending, HttpRequest, HttpResponse, Resume
from dataplane.extproc.session import Session
from dataplane.headers import DESTINATION_ENDPOINT, Headers

FULL_DUPLEX = Modes()
ROUTE = Proceed(set_headers=((DESTINATION_ENDPOINT, b"10.0.0.1:8000"),), clear_route_cache=True)
"""A decision like the picker's."""
PASS = Proceed(set_headers=(("x-seen", b"true"),))
"""An answer to response headers."""
REFUSE = Reject(429, b'{"error":"full"}', (("content-type", b"application/json"),), "full")


def request_headers(
    *extra: tuple[str, str | bytes],
    end: bool = False,
    modes: Modes | None = FULL_DUPLEX,
    metadata: Metadata | None = None,
) -> RequestHeaders:
    headers = Headers.of([(":method", "POST"), (":path", "/v1/completions"), *extra])
    return RequestHeaders(headers, end, metadata, modes)


def request_body(body: bytes = b"", end: bool = False, metadata: Metadata | None = None) -> RequestBody:
    return RequestBody(body, end, metadata)


def request_trailers(metadata: Metadata | None = None) -> RequestTrailers:
    return RequestTrailers(metadata)


def response_headers(
    status: str | None = "200",
    end: bool = False,
    modes: Modes | None = None,
    metadata: Metadata | None = None,
) -> ResponseHeaders:
    pairs = [("content-type", "application/json")]
    if status is not None:
        pairs.insert(0, (":status", status))
    return ResponseHeaders(Headers.of(pairs), end, metadata, modes)


def response_body(body: bytes = b"", end: bool = False, modes: Modes | None = None) -> ResponseBody:
    return ResponseBody(body, end, None, modes)


def response_trailers() -> ResponseTrailers:
    return ResponseTrailers(None)


class RecordingExchange:
    """Answers as it was told to and writes down what it was asked. An exception as an answer is raised."""

    def __init__(
        self,
        decision: Decision | Exception | None = ROUTE,
        response: Decision | Exception = PASS,
        *,
        needs_request_body: bool = True,
        observes_response_body: bool = True,
        on_chunk: Exception | None = None,
        on_end: Exception | None = None,
        metadata: MetadataValues | None = None,
    ) -> None:
        self.decision = decision
        self.response = response
        self.needs_request_body = needs_request_body
        self.observes_response_body = observes_response_body
        self.chunk_error = on_chunk
        self.end_error = on_end
        self.metadata = metadata
        self.requests: list[HttpRequest] = []
        self.responses: list[HttpResponse] = []
        self.chunks: list[tuple[bytes, bool]] = []
        self.endings: list[Ending] = []
        self.resume: Resume = _not_asked

    def on_request(self, request: HttpRequest, resume: Resume) -> Decision | None:
        self.requests.append(request)
        self.resume = resume
        return _answer(self.decision)

    def on_response_headers(self, response: HttpResponse) -> Decision:
        self.responses.append(response)
        decision = _answer(self.response)
        assert decision is not None
        return decision

    def on_response_chunk(self, chunk: bytes, end: bool) -> MetadataValues | None:
        self.chunks.append((chunk, end))
        if self.chunk_error is not None:
            raise self.chunk_error
        return self.metadata if end else None

    def on_end(self, ending: Ending) -> None:
        self.endings.append(ending)
        if self.end_error is not None:
            raise self.end_error


class HoldingTransform:
    """Makes every "a" longer and drops every "l", and always holds some bytes back."""

    def __init__(self, hold: int) -> None:
        self._hold = hold
        self._held = b""
        self.fed: list[tuple[bytes, bool]] = []

    @staticmethod
    def change(body: bytes) -> bytes:
        """What becomes of a body."""
        return body.replace(b"l", b"").replace(b"a", b"AAAAA")

    def feed(self, chunk: bytes, end: bool) -> bytes:
        self.fed.append((chunk, end))
        changed = self.change(chunk)
        if changed == chunk and not self._held and not self._hold:
            return chunk
        data = self._held + changed
        cut = len(data) if end else max(0, len(data) - self._hold)
        self._held = data[cut:]
        return data[:cut]


def _answer(decision: Decision | Exception | None) -> Decision | None:
    if isinstance(decision, Exception):
        raise decision
    return decision


def _not_asked(decision: Decision) -> None:
    raise AssertionError("no decision has been asked for")


class DrivenSession:
    """A session with what a server gives it; effects of late decisions are collected like all others."""

    def __init__(
        self,
        exchange: RecordingExchange,
        *,
        max_body_bytes: int = 16 * 1024 * 1024,
        budget: BodyBudget | None = None,
        default_modes: Modes = FULL_DUPLEX,
    ) -> None:
        self.exchange = exchange
        self.budget = budget or BodyBudget(1 << 30)
        self.defects: list[BaseException] = []
        self.rejections: list[str] = []
        """Codes of requests that the session rejected by itself."""
        self.effects: list[Effect] = []
        self.session = Session(
            exchange,
            resume=self._resume,
            on_defect=self.defects.append,
            on_rejection=lambda error: self.rejections.append(error.code),
            budget=self.budget,
            max_body_bytes=max_body_bytes,
            default_modes=default_modes,
        )

    def receive(self, *events: Event) -> list[Effect]:
        """Effects of these events, late decisions made meanwhile included."""
        before = len(self.effects)
        for event in events:
            # The list must not be taken before the call: a decision may resume within it.
            effects = self.session.receive(event)
            self.effects += effects
        return self.effects[before:]

    def receive_messages(self, *messages: bytes) -> list[Effect]:
        return self.receive(*(decode(message) for message in messages))

    def resume(self, outcome: Decision | Exception) -> list[Effect]:
        """What a late decision of the exchange, or its failure, sends."""
        before = len(self.effects)
        self.exchange.resume(outcome)
        return self.effects[before:]

    def expire(self) -> list[Effect]:
        effects = self.session.expire()
        self.effects += effects
        return effects

    def close(self, ending: Ending | None = None) -> None:
        self.session.close(ending)

    def _resume(self, outcome: Decision | BodyRest | Exception) -> None:
        self.effects += self.session.resume(outcome)


def streamed(effects: list[Effect], response: bool = False) -> bytes:
    """The body bytes that streamed answers carry in one direction."""
    return b"".join(
        effect.body for effect in effects if isinstance(effect, StreamBody) and effect.response is response
    )


def ends(effects: list[Effect], response: bool = False) -> int:
    """How often streamed answers mark the end of the body."""
    return sum(
        1
        for effect in effects
        if isinstance(effect, StreamBody) and effect.response is response and effect.end_of_stream
    )
