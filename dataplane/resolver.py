"""Host names to addresses, again and again, without anybody waiting for a name server.

Names are looked up as the system does it (hosts file, search domains, A and AAAA records), each in a thread
of its own, ``MAX_LOOKUPS`` at a time. The system does not tell how long an answer holds, so a name is looked
up again after a fixed interval, and sooner for as long as it has no address at all. A failed lookup keeps the
addresses of the last good one and is said until one succeeds.

The owner calls ``turn`` every now and then, from one thread at a time: it takes what has arrived, starts what
is due, and never blocks.
"""

from __future__ import annotations

import concurrent.futures
import ipaddress
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

import msgspec

from dataplane.aside import start_aside
from dataplane.clock import SYSTEM_CLOCK, Clock

MAX_LOOKUPS: Final = 8
"""Lookups under way at once; one that hangs counts until it returns."""

MAX_ADDRESSES: Final = 256
"""Addresses of one name that are used."""

RETRY_S: Final = 2.0
"""Longest pause after a failure for a name without any address yet."""

FAMILIES: Final = {"any": socket.AF_UNSPEC, "ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}

Lookup = Callable[[str, socket.AddressFamily], list[str]]


class ResolveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How names are followed. Times in seconds."""

    interval_s: float = 10.0
    timeout_s: float = 5.0
    family: str = "any"
    """A key of ``FAMILIES``."""


def look_up(name: str, family: socket.AddressFamily) -> list[str]:
    """The addresses as the system resolves the name; blocks. ``OSError`` when there is none."""
    answers = socket.getaddrinfo(name, None, family=family, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in answers]


class _Name:
    """What is known of one name."""

    __slots__ = ("addresses", "attempted", "due", "failure", "late", "lookup", "since")

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.attempted = False
        """Whether a lookup has ended or has been given up."""
        self.due = float("-inf")
        self.failure = ""
        self.late = False
        self.lookup: Future[list[str]] | None = None
        self.since = 0.0


class Resolver:
    """Follows a set of names."""

    def __init__(self, *, lookup: Lookup = look_up, clock: Clock = SYSTEM_CLOCK) -> None:
        self._lookup = lookup
        self._clock = clock
        self._names: dict[str, _Name] = {}
        self._left: list[Future[list[str]]] = []
        """Lookups of names that are followed no longer: they still count."""
        self._settings = ResolveSettings()

    def follow(self, names: Iterable[str], settings: ResolveSettings) -> None:
        """Follow these names from now on, and no others; what is known of them stays."""
        wanted = set(names)
        for name in [name for name in self._names if name not in wanted]:
            self._leave(self._names.pop(name))
        if settings.family != self._settings.family:
            for state in self._names.values():
                self._leave(state)
                state.attempted, state.due = False, float("-inf")
        self._settings = settings
        for name in sorted(wanted - self._names.keys()):
            self._names[name] = _Name()

    @property
    def settled(self) -> bool:
        """Whether every name has been tried."""
        return all(state.attempted for state in self._names.values())

    def addresses(self, name: str) -> tuple[str, ...]:
        """Addresses of the last good lookup in a fixed order; none before the first."""
        state = self._names.get(name)
        return () if state is None else state.addresses

    def problems(self) -> list[str]:
        """One text for each name whose latest lookup failed."""
        return [
            f"{name} cannot be resolved ({state.failure}); "
            + (f"its last {len(state.addresses)} addresses stay" if state.addresses else "it has no address")
            for name, state in self._names.items()
            if state.failure
        ]

    def turn(self) -> bool:
        """Take what has arrived and start what is due. True when an address or a problem has changed."""
        now = self._clock()
        self._left = [lookup for lookup in self._left if not lookup.done()]
        changed = False
        for state in self._names.values():
            changed |= self._look_at(state, now)
        free = MAX_LOOKUPS - len(self._left) - sum(s.lookup is not None for s in self._names.values())
        due = [(state.due, name) for name, state in self._names.items() if self._is_due(state, now)]
        for _, name in sorted(due)[: max(0, free)]:
            state = self._names[name]
            state.since, state.late = now, False
            state.lookup = start_aside(lambda name=name: self._look_up(name))  # type: ignore[misc]
        return changed

    def settle(self, timeout_s: float) -> None:
        """Turn until every name has been tried, for at most so long; blocks."""
        give_up = self._clock() + timeout_s
        while self.turn() or not self.settled:
            left = give_up - self._clock()
            if left <= 0:
                return
            under_way = [state.lookup for state in self._names.values() if state.lookup is not None]
            under_way += self._left
            concurrent.futures.wait(under_way, left, return_when=concurrent.futures.FIRST_COMPLETED)

    def _leave(self, state: _Name) -> None:
        """Drop what the lookup under way will find."""
        if state.lookup is not None:
            self._left.append(state.lookup)
            state.lookup = None

    def _is_due(self, state: _Name, now: float) -> bool:
        return state.lookup is None and state.due <= now

    def _look_up(self, name: str) -> list[str]:
        return self._lookup(name, FAMILIES[self._settings.family])

    def _look_at(self, state: _Name, now: float) -> bool:
        if state.lookup is None:
            return False
        before = (state.addresses, state.failure)
        if state.lookup.done():
            try:
                found = _usable(state.lookup.result())
            except (OSError, UnicodeError) as error:  # UnicodeError: a label the resolver cannot encode
                found, state.failure = (), getattr(error, "strerror", None) or str(error)
            else:
                state.failure = "" if found else "none of its addresses can be that of a server"
            if found:
                state.addresses = found
            pause = self._settings.interval_s
            state.due = now + (pause if state.addresses else min(pause, RETRY_S))
            state.lookup, state.attempted = None, True
        elif not state.late and now - state.since > self._settings.timeout_s:
            state.late = state.attempted = True
            state.failure = f"no answer within {self._settings.timeout_s:g} s"
        return (state.addresses, state.failure) != before


def is_one_server(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a server can be reached there."""
    return not (address.is_unspecified or address.is_multicast)


def _usable(found: list[str]) -> tuple[str, ...]:
    parsed = {ipaddress.ip_address(text) for text in found if "%" not in text}
    usable = sorted((a for a in parsed if is_one_server(a)), key=lambda a: (a.version, int(a)))
    return tuple(str(address) for address in usable[:MAX_ADDRESSES])
