"""Verdicts of guardrails, as payload processors tell them through Valkey: those that are still there.

They are read from the newest on, in batches, up to a number of entries that is looked at for one question;
the stream's own ids say when each was told and where the next page begins. Everything here blocks on Valkey.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from controlplane import valkey
from controlplane.core.roles import Action, Actor, require
from controlplane.policies.services import POLICY
from dataplane.errors import ConfigError
from dataplane.verdicts import FIELD, MAX_ENTRIES, STREAM, VerdictRecord

log = logging.getLogger(__name__)

MOST: Final = 500
"""Told at a time."""
MAX_EXPORT: Final = 10_000
"""Verdicts in one export."""
LOOKED_AT: Final = 20_000
"""Entries that are looked at for one page, or for counts."""
BATCH: Final = 1000
MAX_BYTES: Final = 16 << 10
"""Of one entry; a longer one is nobody's."""
KEPT_S: Final = 5.0
"""How long counts are told again without counting."""
FILTERS: Final = ("policy", "rule", "tenant", "model", "pool", "stage", "action", "request_id")
"""Fields by which verdicts are chosen."""
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)

_decode = msgspec.json.Decoder(VerdictRecord).decode


class Source(StrEnum):
    """Where verdicts come from."""

    HERE = "here"
    AWAY = "away"
    """Valkey does not answer."""
    UNSET = "unset"
    """No Valkey is named."""


class Told(NamedTuple):
    """One verdict."""

    id: str
    """Of the stream's entry, such as ``1764500000000-0``."""
    record: VerdictRecord


@dataclass(frozen=True, slots=True)
class Question:
    """Which verdicts; what is left out means all."""

    wanted: Mapping[str, str] = field(default_factory=dict)
    """Of ``FILTERS``, the values that fields have."""
    since: datetime | None = None
    until: datetime | None = None

    def holds(self, record: VerdictRecord) -> bool:
        """Whether a verdict is asked for, but for its time."""
        return all(getattr(record, name) == value for name, value in self.wanted.items())

    @property
    def bounds(self) -> tuple[str, str]:
        """The oldest and the newest id."""
        since, until = (None if at is None else int(at.timestamp() * 1000) for at in (self.since, self.until))
        return "-" if since is None else str(max(0, since)), "+" if until is None else str(max(0, until))


@dataclass(frozen=True, slots=True)
class Page:
    """Some verdicts, newest first."""

    source: Source
    items: list[Told] = field(default_factory=list)
    older: str | None = None
    """Ask for what is before this id; None when there is nothing."""
    newer: str | None = None
    is_cut: bool = False
    """Whether the search ended at ``LOOKED_AT`` entries; more may be before ``older``."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How often what fired."""

    source: Source
    rules: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Policy, rule and action -> how often."""
    is_cut: bool = False
    """Whether only the newest ``LOOKED_AT`` were counted."""

    def of_policy(self, policy: str) -> dict[str, int]:
        """By action."""
        return self._by_action(lambda key: key[0] == policy)

    def of_rule(self, policy: str, rule: str) -> dict[str, int]:
        """By action."""
        return self._by_action(lambda key: key[:2] == (policy, rule))

    def _by_action(self, holds: Any) -> dict[str, int]:
        found: Counter[str] = Counter()
        for key, count in self.rules.items():
            if holds(key):
                found[key[2]] += count
        return {action: found[action] for action in ("block", "mask", "flag") if found[action]}


class _Search:
    """Through the stream, from one end of it to the other."""

    def __init__(self, client: Any, most: int) -> None:
        self._client = client
        self._left = most
        self.is_cut = False
        self.last = ""
        """Id that was looked at last."""

    def run(self, low: str, high: str, *, newest_first: bool = True) -> Iterator[tuple[str, VerdictRecord]]:
        """What is no verdict is passed over: whoever can write to Valkey can write anything."""
        while True:
            if newest_first:
                entries: Any = self._client.xrevrange(STREAM, max=high, min=low, count=BATCH)
            else:
                entries = self._client.xrange(STREAM, min=low, max=high, count=BATCH)
            for raw, fields in entries:
                if self._left <= 0:
                    self.is_cut = True
                    return
                self._left -= 1
                self.last = raw.decode()
                record = _read(fields.get(FIELD.encode()))
                if record is not None:
                    yield self.last, record
            if len(entries) < BATCH:
                return
            low, high = (low, f"({self.last}") if newest_first else (f"({self.last}", high)


def page(
    actor: Actor, question: Question, limit: int, before: str | None = None, after: str | None = None
) -> Page:
    """The newest verdicts, or those next to one: older than ``before``, or newer than ``after``."""
    require(actor, Action.READ, POLICY)
    if not valkey.is_configured():
        return Page(Source.UNSET)
    low, high = question.bounds
    if before is not None:
        high = f"({before}"
    if after is not None:
        low = f"({after}"
    found: list[Told] = []
    try:
        with valkey.client() as client:
            search = _Search(client, LOOKED_AT)
            for identity, record in search.run(low, high, newest_first=after is None):
                if question.holds(record):
                    found.append(Told(identity, record))
                    if len(found) > limit:
                        break
    except (valkey.Unavailable, ConfigError) as error:
        log.warning("verdicts cannot be read: %s", error)
        return Page(Source.AWAY)
    shown, has_more = found[:limit], len(found) > limit
    if after is not None:
        shown.reverse()
        next_newer = shown[0].id if shown and has_more else None
        return Page(Source.HERE, shown, shown[-1].id if shown else after, next_newer)
    older = shown[-1].id if has_more else search.last if search.is_cut else None
    return Page(
        Source.HERE,
        shown,
        older,
        shown[0].id if before is not None and shown else None,
        search.is_cut and not has_more,
    )


def newest(actor: Actor, limit: int, wanted: Mapping[str, str]) -> Page:
    """The newest verdicts whose fields are as wanted."""
    return page(actor, Question(wanted), limit)


def one(actor: Actor, identity: str) -> tuple[Source, Told | None]:
    """The verdict of an id; None when there is none, or none any more."""
    require(actor, Action.READ, POLICY)
    if not valkey.is_configured():
        return Source.UNSET, None
    try:
        with valkey.client() as client:
            found = list(_Search(client, 1).run(identity, identity)) if is_id(identity) else []
    except (valkey.Unavailable, ConfigError) as error:
        log.warning("verdicts cannot be read: %s", error)
        return Source.AWAY, None
    return Source.HERE, Told(*found[0]) if found else None


def export(actor: Actor, question: Question) -> Page:
    """The newest ``MAX_EXPORT`` of all verdicts that are asked for and still there."""
    require(actor, Action.READ, POLICY)
    if not valkey.is_configured():
        return Page(Source.UNSET)
    found: list[Told] = []
    is_cut = False
    try:
        with valkey.client() as client:
            for identity, record in _Search(client, 2 * MAX_ENTRIES).run(*question.bounds):
                if not question.holds(record):
                    continue
                if len(found) == MAX_EXPORT:
                    is_cut = True
                    break
                found.append(Told(identity, record))
    except (valkey.Unavailable, ConfigError) as error:
        log.warning("verdicts cannot be read: %s", error)
        return Page(Source.AWAY)
    return Page(Source.HERE, found, is_cut=is_cut)


class _Counting:
    """Remembers counts for a moment: pages that show them are loaded again and again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[float, Counts]] = {}

    def since(self, actor: Actor, seconds: int) -> Counts:
        """Of the last so many seconds."""
        require(actor, Action.READ, POLICY)
        if not valkey.is_configured():
            return Counts(Source.UNSET)
        key, now = (valkey.url(), seconds), time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < KEPT_S:
            return kept[1]
        self._kept.clear()
        counts = self._count(seconds)
        self._kept[key] = (time.monotonic(), counts)
        return counts

    def _count(self, seconds: int) -> Counts:
        rules: Counter[tuple[str, str, str]] = Counter()
        try:
            with valkey.client() as client:
                search = _Search(client, LOOKED_AT)
                for _, record in search.run(str(int((time.time() - seconds) * 1000)), "+"):
                    rules[record.policy, record.rule, record.action] += 1
        except (valkey.Unavailable, ConfigError) as error:
            log.warning("verdicts cannot be counted: %s", error)
            return Counts(Source.AWAY)
        return Counts(Source.HERE, rules, search.is_cut)

    def forget(self) -> None:
        """Count anew the next time."""
        self._kept.clear()


counting: Final = _Counting()


def is_id(text: str) -> bool:
    """Whether it is how entries of the stream are called."""
    return _ID.fullmatch(text) is not None


def _read(raw: bytes | None) -> VerdictRecord | None:
    if raw is None or len(raw) > MAX_BYTES:
        return None
    try:
        return _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
