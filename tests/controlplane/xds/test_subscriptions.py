"""What a stream is sent and when; and both sides together under changes, breaks and refusals in any order."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controlplane.xds import subscriptions
from controlplane.xds.subscriptions import (
    MAX_TYPES,
    Answer,
    ProtocolError,
    Snapshot,
    Subscriptions,
)
from dataplane.errors import ConfigError
from dataplane.xds.messages import Node, Refusal, Request, Resource, Response, Version, digest_of
from dataplane.xds.subscriber import Offer, Subscriber

KIND = "t"
NAMES = ("pool",)


def snapshot(number: int, value: bytes) -> Snapshot:
    return Snapshot(number, {KIND: {"pool": Resource("pool", value), "other": Resource("other", b"o")}})


def version(number: int, value: bytes) -> str:
    return str(Version(number, digest_of([Resource("pool", value)])))


def sent(stream: Subscriptions, what: Snapshot) -> Response:
    (response,) = stream.due(what)
    return response


@pytest.fixture
def stream() -> Subscriptions:
    """A stream that wants the pool and has nothing."""
    found = Subscriptions()
    assert found.hear(Request(KIND, names=NAMES)) is None
    return found


def ack(response: Response) -> Request:
    return Request(KIND, response.version, response.nonce, NAMES)


def test_only_what_is_asked_for_is_sent_and_nothing_twice(stream: Subscriptions) -> None:
    first = sent(stream, snapshot(1, b"a"))
    assert first == Response(KIND, version(1, b"a"), "1", (Resource("pool", b"a"),))
    assert stream.due(snapshot(2, b"b")) == []  # one at a time
    assert stream.hear(ack(first)) == Answer(KIND, Version.parse(first.version), first.version)  # type: ignore[arg-type]
    second = sent(stream, snapshot(3, b"c"))
    assert (second.version, second.nonce) == (version(3, b"c"), "2")
    stream.hear(ack(second))
    assert stream.due(snapshot(4, b"c")) == []


def test_no_names_are_all_resources() -> None:
    stream = Subscriptions()
    stream.hear(Request(KIND))
    assert [each.name for each in sent(stream, snapshot(1, b"a")).resources] == ["pool", "other"]


def test_what_is_refused_is_sent_again_only_when_it_has_changed(stream: Subscriptions) -> None:
    first = sent(stream, snapshot(1, b"bad"))
    refusal = Refusal("no")
    answer = stream.hear(Request(KIND, "", first.nonce, NAMES, None, refusal))
    assert answer == Answer(KIND, Version.parse(first.version), "", refusal)  # type: ignore[arg-type]
    assert stream.due(snapshot(2, b"bad")) == []
    assert sent(stream, snapshot(3, b"good")).version == version(3, b"good")


def test_answers_to_what_is_not_the_last_thing_sent_mean_nothing(stream: Subscriptions) -> None:
    first = sent(stream, snapshot(1, b"a"))
    assert stream.hear(Request(KIND, first.version, "0", ("other",))) is None
    assert stream.due(snapshot(2, b"b")) == []
    stream.hear(ack(first))
    second = sent(stream, snapshot(2, b"b"))
    assert stream.hear(ack(first)) is None
    assert stream.hear(ack(second)) is not None


def test_who_comes_back_with_the_newest_is_sent_nothing() -> None:
    stream = Subscriptions()
    answer = stream.hear(Request(KIND, version(5, b"a"), names=NAMES))
    assert answer == Answer(KIND, Version.parse(version(5, b"a")), version(5, b"a"))  # type: ignore[arg-type]
    assert stream.due(snapshot(9, b"a")) == []
    assert sent(stream, snapshot(9, b"b")).version == version(9, b"b")


def test_nobody_is_sent_back_to_an_older_state() -> None:
    stream = Subscriptions()
    stream.hear(Request(KIND, version(5, b"b"), names=NAMES))
    assert stream.due(snapshot(4, b"a")) == []
    assert stream.ahead == 5
    assert sent(stream, snapshot(6, b"a")).version == version(6, b"a")


def test_other_names_are_answered_with_other_resources(stream: Subscriptions) -> None:
    first = sent(stream, snapshot(1, b"a"))
    stream.hear(ack(first))
    assert stream.hear(Request(KIND, first.version, first.nonce, ("pool", "other"))) is None
    assert [each.name for each in sent(stream, snapshot(1, b"a")).resources] == ["other", "pool"]


def test_types_there_are_not_are_waited_for_and_their_number_is_capped() -> None:
    stream = Subscriptions()
    for number in range(MAX_TYPES):
        stream.hear(Request(f"k{number}"))
    assert stream.due(snapshot(1, b"a")) == []
    with pytest.raises(ProtocolError):
        stream.hear(Request("one more"))
    with pytest.raises(ProtocolError):
        Subscriptions().hear(Request(""))


def test_names_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 2)
    Subscriptions().hear(Request(KIND, names=("a", "b")))
    with pytest.raises(ProtocolError):
        Subscriptions().hear(Request(KIND, names=("a", "b", "c")))


VALUES = st.sampled_from([b"a", b"b", b"c", b"bad", b"worse"])


class Conversation(RuleBasedStateMachine):
    """A worker and a server whose messages are delayed, lost with their stream, and refused."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 1
        self.value = b"a"
        self.applied: list[Version] = []
        self.in_use: bytes | None = None
        self.nacked: Version | None = None
        self.worker = Subscriber(Node("w", "pool"), {KIND: NAMES})
        self.connect()

    @rule()
    def connect(self) -> None:
        """The stream breaks, wherever it is, and another one begins."""
        self.server = Subscriptions()
        self.up = deque(self.worker.connect())
        self.down: deque[Response] = deque()

    @rule(value=VALUES, by=st.integers(1, 3))
    def change(self, value: bytes, by: int) -> None:
        self.number += by
        self.value = value
        self.push()

    @rule()
    def push(self) -> None:
        self.down += self.server.due(snapshot(self.number, self.value))

    @precondition(lambda self: self.up)
    @rule()
    def server_hears(self) -> None:
        answer = self.server.hear(self.up.popleft())
        if answer is not None and answer.refusal is not None:
            self.nacked = answer.version
        self.push()

    @precondition(lambda self: self.down)
    @rule()
    def worker_hears(self) -> None:
        before = self.in_use
        offer = self.worker.receive(self.down.popleft())
        assert isinstance(offer, Offer), offer
        value = offer.held.resources[0].value
        if offer.changed and value in {b"bad", b"worse"}:
            self.up.append(self.worker.refuse(offer, [ConfigError("is bad")]))
            assert self.in_use == before
            return
        assert offer.changed == (value != before)
        self.up.append(self.worker.accept(offer))
        self.in_use = value
        self.applied.append(offer.held.version)

    @rule(behind=st.integers(1, 3), value=VALUES)
    def a_server_that_lags(self, behind: int, value: bytes) -> None:
        """Has another server, which has not seen the last changes, answer for a while."""
        self.connect()
        while self.up:
            self.server.hear(self.up.popleft())
        held = self.worker.held.get(KIND)
        if held is not None and held.version.number > self.number - behind:
            stale = [each.version for each in self.server.due(snapshot(self.number - behind, value))]
            assert stale == []
        self.connect()

    @invariant()
    def versions_only_grow(self) -> None:
        numbers = [each.number for each in self.applied]
        assert numbers == sorted(numbers)

    @invariant()
    def at_most_one_set_is_under_way(self) -> None:
        assert len(self.down) <= 1

    def teardown(self) -> None:
        """When nothing changes any more, both come to the same, or the refusal is known."""
        for _ in range(20):
            while self.up:
                self.server_hears()
            while self.down:
                self.worker_hears()
        assert not self.up
        assert not self.down
        if self.value in {b"bad", b"worse"}:
            newest = digest_of([Resource("pool", self.value)])
            assert self.nacked is not None
            assert self.nacked.digest == newest
        else:
            assert self.in_use == self.value


TestConversation = Conversation.TestCase
