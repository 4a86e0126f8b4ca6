"""Any sequence of messages that Envoy can send gives what a naive model says, and any other a ProtocolError.

The model keeps whole bodies as bytes and counts; it knows nothing of effects that are built up step by step.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dataplane.errors import BadRequestError
from dataplane.extproc import bodies as bodies_module
from dataplane.extproc.events import (
    AnswerBody,
    AnswerHeaders,
    AnswerTrailers,
    BodyMode,
    Modes,
    Proceed,
    Reject,
    StreamBody,
)
from dataplane.extproc.exchange import Ending
from dataplane.extproc.phases import ProtocolError
from tests.support.exchanges import (
    PASS,
    REFUSE,
    ROUTE,
    DrivenSession,
    HoldingTransform,
    RecordingExchange,
    ends,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
    streamed,
)

FULL = BodyMode.FULL_DUPLEX_STREAMED
ONE_MESSAGE = (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)
CAP = 40
SMALL_CHUNK = 7
CHUNKS = st.binary(max_size=20) | st.text("alb", max_size=20).map(str.encode)
RARELY = st.integers(0, 9).map(lambda number: number == 9)
"""For what ends a stream: drawn evenly, it would end nearly every stream at once."""
ANEW = b"another body altogether"
REPLACE = Proceed(ROUTE.set_headers, clear_route_cache=True, body=ANEW)
HOLD = 3
DECISIONS = [
    ROUTE,
    ROUTE,
    REPLACE,
    REPLACE,
    None,
    None,
    None,
    REFUSE,
    BadRequestError("no"),
    KeyError("defect"),
]

EVERYTHING = [
    request_headers(),
    request_body(b"x"),
    request_body(b"", end=True),
    request_trailers(),
    response_headers(),
    response_body(b"x", end=True),
    response_trailers(),
]


class EnvoyAgainstSession(RuleBasedStateMachine):
    """Envoy's side of one stream, and beside it what must have come of it so far."""

    @initialize(
        request=st.sampled_from(BodyMode),
        response=st.sampled_from(BodyMode),
        nowait=st.booleans(),
        needs_body=st.booleans(),
        observes=st.booleans(),
        decision=st.sampled_from(DECISIONS),
        answer=st.sampled_from([PASS, PASS, PASS, REFUSE, KeyError("defect")]),
        transforms=st.booleans(),
    )
    def configure(self, request, response, nowait, needs_body, observes, decision, answer, transforms):
        self.original_chunk = bodies_module.MAX_CHUNK_BYTES
        bodies_module.MAX_CHUNK_BYTES = SMALL_CHUNK
        self.modes = Modes(request, response, nowait)
        self.needs_body = needs_body and (
            request in (FULL, *ONE_MESSAGE) or (request is BodyMode.STREAMED and nowait)
        )
        self.transforms = transforms and answer is PASS
        if self.transforms:
            answer = Proceed(PASS.set_headers, transform=HoldingTransform(HOLD))
        self.exchange = RecordingExchange(
            decision, answer, needs_request_body=needs_body, observes_response_body=observes
        )
        self.driven = DrivenSession(self.exchange, max_body_bytes=CAP)
        self.body = self.response = b""
        self.bodies = 0
        self.response_chunks: list[bytes] = []
        self.started = self.asked = self.proceeded = self.void = self.closed = False
        self.request_end = self.response_end = ""
        self.response_started = self.response_headers_seen = False
        self.rejected = self.replaced = False
        self.ending: Ending | None = None

    # -- what the model concludes -------------------------------------------------------------------------

    def end(self, ending: Ending) -> None:
        self.ending = self.ending or ending

    def reject(self, ending: Ending = Ending.REJECTED) -> None:
        self.rejected = self.void = True
        self.end(ending)

    def ask(self) -> None:
        self.asked = True
        self.settle(self.exchange.decision)

    def settle(self, decision) -> None:
        if decision is ROUTE or decision is REPLACE:
            self.proceeded = True
            is_here = self.request_end or (self.modes.request in ONE_MESSAGE and self.needs_body)
            self.replaced = decision is REPLACE and self.bodies > 0 and bool(is_here)
        elif decision is not None:
            self.reject(Ending.ERROR if isinstance(decision, KeyError) else Ending.REJECTED)

    @property
    def is_waiting(self) -> bool:
        return self.started and not (self.proceeded or self.void or self.response_started)

    @property
    def may_send_request(self) -> bool:
        """Whether Envoy waits for no answer, or does not care."""
        if not self.started or self.response_started or self.request_end or self.void:
            return False
        overlaps = self.modes.request is FULL or (
            self.modes.request is BodyMode.STREAMED and self.modes.body_without_waiting
        )
        waits_for_body = self.modes.request in ONE_MESSAGE and self.needs_body and not self.bodies
        return overlaps or self.proceeded or waits_for_body

    # -- request ------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.started and not self.response_started and not self.void)
    @rule(end=st.booleans())
    def request_headers(self, end):
        self.driven.receive(request_headers(end=end, modes=self.modes))
        self.started = True
        self.request_end = "headers" if end else ""
        if end or not self.needs_body:
            self.ask()

    @precondition(
        lambda self: (
            self.may_send_request
            and self.modes.request is not BodyMode.NONE
            and not (self.modes.request in ONE_MESSAGE and self.bodies)
        )
    )
    @rule(chunk=CHUNKS, end=st.booleans())
    def request_body(self, chunk, end):
        self.driven.receive(request_body(chunk, end))
        self.bodies += 1
        self.body += chunk
        self.request_end = "body" if end else ""
        if not self.is_waiting:
            return
        if len(self.body) > CAP or (self.modes.request is BodyMode.BUFFERED_PARTIAL and not end and chunk):
            self.reject()
        elif not self.asked and (end or self.modes.request in ONE_MESSAGE):
            self.ask()

    @precondition(lambda self: self.request_end and self.modes.request is FULL and self.started)
    @rule(chunk=CHUNKS)
    def repeated_request_end(self, chunk):
        assert self.driven.receive(request_body(chunk, end=True)) == []

    @precondition(lambda self: self.may_send_request)
    @rule()
    def request_trailers(self):
        self.driven.receive(request_trailers())
        self.request_end = "trailers"
        if self.is_waiting and not self.asked:
            if self.modes.request in ONE_MESSAGE and not self.bodies:
                self.reject()
            else:
                self.ask()

    # -- decisions ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.asked)
    @rule(decision=st.sampled_from([ROUTE, REPLACE, REFUSE]))
    def resume(self, decision):
        was_waiting = self.is_waiting and not self.closed
        effects = self.driven.resume(decision)
        assert bool(effects) is was_waiting
        if was_waiting:
            self.settle(decision)

    @rule(now=RARELY)
    def expire(self, now):
        if not now:
            return
        effects = self.driven.expire()
        assert bool(effects) is (self.is_waiting and not self.closed)
        if effects:
            assert [effect.status for effect in effects if isinstance(effect, Reject)] == [504]
            self.reject(Ending.DEADLINE)

    # -- response -----------------------------------------------------------------------------------------

    @precondition(lambda self: not self.response_started and not self.void)
    @rule(end=st.booleans(), overtakes=RARELY)
    def response_headers(self, end, overtakes):
        if not (self.proceeded or overtakes):
            return
        self.driven.receive(response_headers(end=end, modes=None if self.started else self.modes))
        self.response_started = self.response_headers_seen = True
        if self.exchange.response is REFUSE:
            self.reject()
        elif end or self.modes.response is BodyMode.NONE:
            self.response_end = "headers"
            self.end(Ending.NATURAL)

    @precondition(lambda self: self.response_headers_seen and not self.response_end and not self.void)
    @rule(chunk=CHUNKS, end=st.booleans())
    def response_body(self, chunk, end):
        self.driven.receive(response_body(chunk, end))
        self.response_chunks.append(chunk)
        self.response += chunk
        if end or self.modes.response in ONE_MESSAGE:
            self.response_end = "body" if end else "message"
            self.end(Ending.NATURAL)

    @precondition(lambda self: self.response_end and self.modes.response is FULL)
    @rule(chunk=CHUNKS)
    def repeated_response_end(self, chunk):
        assert self.driven.receive(response_body(chunk, end=True)) == []

    @precondition(
        lambda self: self.response_headers_seen and self.response_end in ("", "message") and not self.void
    )
    @rule()
    def response_trailers(self):
        self.driven.receive(response_trailers())
        self.response_end = "trailers" if not self.response_end else "message, trailers"
        self.end(Ending.NATURAL)

    @precondition(lambda self: self.void)
    @rule(event=st.sampled_from(EVERYTHING))
    def message_after_the_last_word(self, event):
        assert self.driven.receive(event) == []

    # -- the end ------------------------------------------------------------------------------------------

    @rule(now=RARELY)
    def close(self, now):
        if not now:
            return
        self.driven.close()
        request_done = self.proceeded and (self.request_end or self.modes.request is not FULL)
        is_all_shown = self.modes.response is BodyMode.NONE and request_done and not self.void
        self.end(Ending.NATURAL if is_all_shown else Ending.DISCONNECT)
        self.closed = self.void = True

    def illegal_events(self) -> list:
        """Messages that cannot come here. A request whose response overtook it is not looked at any more."""
        is_overtaken = self.started and self.response_started and not self.proceeded
        illegal = []
        if (self.started or self.response_started) and not is_overtaken:
            illegal.append(request_headers())
        if not self.started:
            illegal += [request_body(b"x"), request_body(b"", True), request_trailers()]
        if self.request_end == "trailers" and not is_overtaken:
            illegal.append(request_trailers())
        if self.response_started:
            illegal.append(response_headers())
        if "trailers" in self.response_end:
            illegal.append(response_trailers())
        return illegal

    @precondition(lambda self: not self.void)
    @rule(data=st.data(), now=RARELY)
    def send_what_cannot_come(self, data, now):
        illegal = self.illegal_events()
        if not (illegal and now):
            return
        before = list(self.driven.effects)
        with pytest.raises(ProtocolError):
            self.driven.receive(data.draw(st.sampled_from(illegal)))
        assert self.driven.effects == before
        self.driven.close(Ending.ERROR)
        self.end(Ending.ERROR)
        self.closed = self.void = True

    # -- what must hold -----------------------------------------------------------------------------------

    @invariant()
    def request_is_answered_as_the_model_says(self):
        effects = self.driven.effects
        headers = [e for e in effects if isinstance(e, AnswerHeaders) and not e.response]
        bodies = [e for e in effects if isinstance(e, AnswerBody) and not e.response]
        trailers = [e for e in effects if isinstance(e, AnswerTrailers) and not e.response]
        chunks = [e for e in effects if isinstance(e, StreamBody) and not e.response]
        decided = [e for e in (*headers, *bodies) if e.proceed in (ROUTE, REPLACE)]
        if not self.proceeded:
            assert decided == bodies == trailers == chunks == []
            assert len(headers) <= 1
            return
        assert len(headers) == len(decided) == 1
        assert len(trailers) == (self.request_end == "trailers")
        if self.modes.request is FULL:
            assert bodies == []
            assert streamed(effects) == (ANEW if self.replaced else self.body)
            assert ends(effects) == (self.request_end == "body")
        else:
            assert chunks == []
            assert len(bodies) == self.bodies
            new = [ANEW, *[b""] * (self.bodies - 1)] if self.replaced else [None] * self.bodies
            assert [e.body for e in bodies] == new
        assert_in_order(effects, response=False)

    @invariant()
    def response_is_answered_as_the_model_says(self):
        effects = self.driven.effects
        bodies = [e for e in effects if isinstance(e, AnswerBody) and e.response]
        headers = [e for e in effects if isinstance(e, AnswerHeaders) and e.response]
        trailers = [e for e in effects if isinstance(e, AnswerTrailers) and e.response]
        is_replaced = self.exchange.response is REFUSE
        assert len(headers) == (self.response_headers_seen and not is_replaced)
        assert len(trailers) == ("trailers" in self.response_end)
        if self.modes.response is FULL:
            assert bodies == []
            assert streamed(effects, response=True) == self.transformed(may_follow=True)
            assert ends(effects, response=True) == (self.response_end == "body")
        else:
            assert streamed(effects, response=True) == b""
            assert len(bodies) == len(self.response_chunks)
            if self.transforms:
                shown = zip(bodies, self.response_chunks, strict=True)
                passed = b"".join(chunk if e.body is None else e.body for e, chunk in shown)
                assert passed == self.transformed(may_follow=False)
            else:
                assert {e.body for e in bodies} <= {None}
        assert_in_order(effects, response=True)

    def transformed(self, may_follow) -> bytes:
        """What is sent of the response so far; ``may_follow``: what is held can precede the trailers."""
        if not self.transforms:
            return self.response
        changed = HoldingTransform.change(self.response)
        if self.response_end in ("body", "message", "message, trailers"):
            return changed
        if self.response_end == "trailers" and may_follow:
            return changed
        return changed[: max(0, len(changed) - HOLD)]

    @invariant()
    def nothing_follows_the_one_immediate_response(self):
        rejects = [effect for effect in self.driven.effects if isinstance(effect, Reject)]
        assert len(rejects) == self.rejected
        assert rejects == [] or self.driven.effects[-1] is rejects[0]

    @invariant()
    def chunks_are_small_and_nothing_is_held_without_need(self):
        chunks = [effect.body for effect in self.driven.effects if isinstance(effect, StreamBody)]
        assert max(map(len, chunks), default=0) <= SMALL_CHUNK
        assert self.driven.session.is_waiting is (self.is_waiting and not self.closed)
        if not self.driven.session.is_waiting:
            assert self.driven.budget.used_bytes == 0

    @invariant()
    def exchange_sees_what_the_model_says(self):
        exchange = self.exchange
        assert len(exchange.requests) == self.asked
        assert exchange.endings == ([] if self.ending is None else [self.ending])
        observed = b"".join(chunk for chunk, _ in exchange.chunks)
        assert observed == (self.response if exchange.observes_response_body else b"")
        body_ended = self.response_end not in ("", "headers") and exchange.observes_response_body
        assert [end for _, end in exchange.chunks].count(True) == body_ended

    def teardown(self):
        if not hasattr(self, "driven"):
            return
        bodies_module.MAX_CHUNK_BYTES = self.original_chunk
        self.driven.close()
        assert len(self.exchange.endings) == 1
        assert self.driven.budget.used_bytes == 0


def assert_in_order(effects, response: bool) -> None:
    """Headers, then bodies, the end on the last of them, then trailers."""
    rank = {AnswerHeaders: 0, AnswerBody: 1, StreamBody: 1, AnswerTrailers: 2}
    mine = [effect for effect in effects if type(effect) in rank and effect.response is response]
    assert [rank[type(effect)] for effect in mine] == sorted(rank[type(effect)] for effect in mine)
    streams = [effect for effect in mine if isinstance(effect, StreamBody)]
    assert not any(effect.end_of_stream for effect in streams[:-1])


EnvoyAgainstSession.TestCase.settings = settings(max_examples=300, stateful_step_count=25)
TestAnySequence = EnvoyAgainstSession.TestCase


@given(
    body=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=8),
    end_on_data=st.booleans(),
    repeats=st.integers(0, 2),
)
def test_any_chunking_of_a_body_gives_the_same_result(body, cuts, end_on_data, repeats):
    at = sorted({0, *(cut for cut in cuts if cut < len(body))})
    pieces = [body[start:stop] for start, stop in zip(at, [*at[1:], len(body)], strict=True)]
    events = [request_body(piece) for piece in pieces]
    if end_on_data:
        events[-1].end_of_stream = True
    else:
        events.append(request_body(b"", end=True))
    events += [request_body(pieces[-1], end=True)] * repeats
    driven = DrivenSession(RecordingExchange())
    effects = driven.receive(request_headers(), *events)
    assert effects == [AnswerHeaders(False, ROUTE), StreamBody(False, body, True)]
    assert [request.body for request in driven.exchange.requests] == [body]
