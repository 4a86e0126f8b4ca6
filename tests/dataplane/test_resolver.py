"""Names are followed: new addresses count, failures keep the old ones, and nobody waits for a name server."""

import socket
import threading

import pytest

from dataplane.resolver import MAX_ADDRESSES, MAX_LOOKUPS, RETRY_S, Resolver, ResolveSettings
from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S

SETTINGS = ResolveSettings(interval_s=10.0, timeout_s=5.0)


class Names:
    """A name server whose answers are put in by hand."""

    def __init__(self) -> None:
        self.answers: dict[str, list[str] | OSError] = {}
        self.asked: list[tuple[str, socket.AddressFamily]] = []
        self.hanging: dict[str, threading.Event] = {}
        self.clock = ManualClock(100.0)
        self.resolver = Resolver(lookup=self.look_up, clock=self.clock)

    def look_up(self, name: str, family: socket.AddressFamily) -> list[str]:
        self.asked.append((name, family))
        if name in self.hanging:
            self.hanging[name].wait()
        answer = self.answers[name]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def hang(self, *names: str) -> None:
        self.hanging |= {name: threading.Event() for name in names}

    def release(self) -> None:
        for event in self.hanging.values():
            event.set()
        self.hanging.clear()

    def arrive(self) -> bool:
        """Let every lookup that does not hang end; whether something changed."""
        changed = self.resolver.turn()
        for state in self.resolver._names.values():
            if state.lookup is not None and not self.hanging:
                state.lookup.exception(timeout=PATIENCE_S)
        return self.resolver.turn() or changed


@pytest.fixture
def names():
    """A name server."""
    server = Names()
    yield server
    server.release()


def test_a_name_gets_the_addresses_of_both_families_sorted_and_once(names: Names):
    names.answers["a"] = ["fd00::2", "10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1"]
    names.resolver.follow(["a"], SETTINGS)
    assert names.resolver.addresses("a") == ()
    assert not names.resolver.settled
    assert names.arrive()
    assert names.resolver.addresses("a") == ("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2")
    assert names.resolver.settled
    assert names.resolver.problems() == []


def test_what_cannot_be_a_server_is_left_out(names: Names):
    names.answers["a"] = ["0.0.0.0", "ff02::1", "fe80::1%eth0", "10.0.0.1"]
    names.answers["b"] = ["::"]
    names.resolver.follow(["a", "b"], SETTINGS)
    names.arrive()
    assert names.resolver.addresses("a") == ("10.0.0.1",)
    assert names.resolver.problems() == [
        "b cannot be resolved (none of its addresses can be that of a server); it has no address"
    ]


def test_the_addresses_of_a_name_have_a_cap(names: Names):
    names.answers["a"] = [f"10.0.{i // 256}.{i % 256}" for i in range(1, MAX_ADDRESSES + 2)]
    names.resolver.follow(["a"], SETTINGS)
    names.arrive()
    assert len(names.resolver.addresses("a")) == MAX_ADDRESSES


def test_a_name_is_looked_up_again_after_the_interval(names: Names):
    names.answers["a"] = ["10.0.0.1"]
    names.resolver.follow(["a"], SETTINGS)
    names.arrive()
    names.answers["a"] = ["10.0.0.2"]
    names.clock.now += 9.9
    assert not names.arrive()
    names.clock.now += 0.2
    assert names.arrive()
    assert names.resolver.addresses("a") == ("10.0.0.2",)
    assert len(names.asked) == 2


def test_a_failure_keeps_the_last_addresses_and_is_said_until_it_is_over(names: Names):
    names.answers["a"] = ["10.0.0.1"]
    names.resolver.follow(["a"], SETTINGS)
    names.arrive()
    names.answers["a"] = socket.gaierror(-2, "Name or service not known")
    names.clock.now += 11
    assert names.arrive()
    assert names.resolver.addresses("a") == ("10.0.0.1",)
    assert names.resolver.problems() == [
        "a cannot be resolved (Name or service not known); its last 1 addresses stay"
    ]
    names.answers["a"] = ["10.0.0.1"]
    names.clock.now += 11
    assert names.arrive()
    assert names.resolver.problems() == []


def test_a_name_without_any_address_is_tried_again_soon(names: Names):
    names.answers["a"] = socket.gaierror(-3, "Temporary failure in name resolution")
    names.resolver.follow(["a"], SETTINGS)
    names.arrive()
    names.answers["a"] = ["10.0.0.1"]
    names.clock.now += RETRY_S + 0.1
    names.arrive()
    assert names.resolver.addresses("a") == ("10.0.0.1",)


def test_a_lookup_that_hangs_is_said_and_its_answer_still_counts(names: Names):
    names.answers["a"] = ["10.0.0.1"]
    names.hang("a")
    names.resolver.follow(["a"], SETTINGS)
    names.resolver.turn()
    names.clock.now += 5.1
    assert names.resolver.turn()
    assert names.resolver.settled
    assert names.resolver.problems() == ["a cannot be resolved (no answer within 5 s); it has no address"]
    lookup = names.resolver._names["a"].lookup
    names.release()
    assert lookup is not None
    lookup.result(timeout=PATIENCE_S)
    assert names.resolver.turn()
    assert names.resolver.addresses("a") == ("10.0.0.1",)
    assert names.resolver.problems() == []


def test_no_more_lookups_are_under_way_than_the_cap_though_all_hang(names: Names):
    many = [f"n{i}" for i in range(MAX_LOOKUPS + 3)]
    names.answers = {name: ["10.0.0.1"] for name in many}
    names.hang(*many)
    names.resolver.follow(many, SETTINGS)
    for _ in range(3):
        names.resolver.turn()
        names.clock.now += 60
    under_way = [state.lookup for state in names.resolver._names.values() if state.lookup is not None]
    assert len(under_way) == MAX_LOOKUPS
    names.resolver.follow([], SETTINGS)
    names.resolver.follow(["x"], SETTINGS)
    names.resolver.turn()
    assert names.resolver._names["x"].lookup is None
    names.answers["x"] = ["10.0.0.9"]
    names.release()
    for lookup in under_way:
        lookup.result(timeout=PATIENCE_S)
    names.arrive()
    assert names.resolver.addresses("x") == ("10.0.0.9",)


def test_a_name_followed_no_longer_is_forgotten_and_the_others_stay(names: Names):
    names.answers = {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}
    names.resolver.follow(["a", "b"], SETTINGS)
    names.arrive()
    names.resolver.follow(["b"], SETTINGS)
    assert names.resolver.addresses("a") == ()
    assert names.resolver.addresses("b") == ("10.0.0.2",)
    assert names.resolver.settled


def test_another_family_asks_again_and_keeps_the_addresses_until_the_answer(names: Names):
    names.answers["a"] = ["10.0.0.1"]
    names.resolver.follow(["a"], SETTINGS)
    names.arrive()
    names.answers["a"] = ["fd00::1"]
    names.resolver.follow(["a"], ResolveSettings(family="ipv6"))
    assert names.resolver.addresses("a") == ("10.0.0.1",)
    assert not names.resolver.settled
    names.arrive()
    assert names.resolver.addresses("a") == ("fd00::1",)
    assert [family for _, family in names.asked] == [socket.AF_UNSPEC, socket.AF_INET6]


def test_settling_waits_for_all_names_that_answer():
    resolver = Resolver(lookup=lambda name, _: [f"10.0.0.{len(name)}"])
    resolver.follow(["a" * length for length in range(1, 30)], SETTINGS)
    resolver.settle(30.0)
    assert resolver.settled
    assert resolver.addresses("aaa") == ("10.0.0.3",)


def test_settling_does_not_wait_for_ever():
    release = threading.Event()

    def hang(name: str, family: socket.AddressFamily) -> list[str]:
        release.wait()
        return []

    resolver = Resolver(lookup=hang)
    resolver.follow(["a"], SETTINGS)
    resolver.settle(0.01)
    assert not resolver.settled
    release.set()


def test_the_system_knows_localhost():
    resolver = Resolver()
    resolver.follow(["localhost"], ResolveSettings(family="ipv4"))
    resolver.settle(30.0)
    assert resolver.addresses("localhost") == ("127.0.0.1",)
