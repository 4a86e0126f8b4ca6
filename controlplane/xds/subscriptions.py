"""The control plane's side of the conversation with one worker or Envoy: what a request means, what to send.

No I/O and no clock. Of each type one set is under way at a time: while the other side has not answered, newer
sets replace one another, and only the newest is sent next. Nothing is sent twice: not what is in use, and not
what was refused, unless something in it has changed since.

Types that depend on one another have a ``Rule`` each: who waits for whom, so that nothing points at what is
not there yet, and what is gone stays until nothing points at it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dataplane.xds.messages import Refusal, Request, Resource, Response, Version, digest_of

MAX_TYPES: Final = 16
MAX_NAMES: Final = 20_000
"""Resources of one type that a stream may name."""
WILDCARD: Final = "*"


class ProtocolError(Exception):
    """What was said makes no sense, or is more than is served; the stream ends."""


class Rule(NamedTuple):
    """How sets of one type are sent."""

    by_name: bool = False
    """Names mean what they say (none: nothing is wanted), and of a set only what is new is sent."""
    after: tuple[str, ...] = ()
    """Types whose news are settled before this one's are sent."""
    kept_for: tuple[str, ...] = ()
    """Types that may point at this one: what is gone stays in the set until they have taken their news."""
    named_by: str = ""
    """The type whose set makes the other side ask for names of this one."""


PLAIN: Final = Rule()


class Snapshot:
    """Everything there is for one kind of subscriber, at one number. Never changes."""

    def __init__(self, number: int, resources: Mapping[str, Mapping[str, Resource]]) -> None:
        self.number = number
        self.resources = resources
        """Type -> name -> resource."""
        self._digests: dict[tuple[str, frozenset[str]], str] = {}

    def select(self, type_url: str, names: frozenset[str]) -> tuple[tuple[Resource, ...], str] | None:
        """The resources of these names (none: all), and their digest; None for types there are not."""
        there = self.resources.get(type_url)
        if there is None:
            return None
        everything = not names or WILDCARD in names
        chosen = tuple(there.values() if everything else (there[n] for n in sorted(names & there.keys())))
        key = (type_url, names)
        digest = self._digests.get(key)
        if digest is None:
            digest = digest_of(chosen)
            if len(self._digests) < MAX_TYPES:
                self._digests[key] = digest
        return chosen, digest


class Answer(msgspec.Struct, frozen=True):
    """What the other side said of a set it was sent, or has from before."""

    type_url: str
    version: Version
    in_use: str
    """The version it uses; empty = none."""
    refusal: Refusal | None = None
    """None = ACK."""


class _Subscription(msgspec.Struct):
    names: frozenset[str] = frozenset()
    held: Version | None = None
    """What the other side uses."""
    refused: str = ""
    """Digest of what it refused last."""
    nonce: str = ""
    """Of what it was sent last."""
    under_way: Version | None = None
    """What it was sent and has not answered."""
    sent: dict[str, Resource] = {}
    """Of what is under way, by name."""
    accepted: dict[str, Resource] | None = None
    """What it has, by name; None = this stream does not know."""


class _Due(NamedTuple):
    """What the other side should have, and what of it is sent."""

    version: Version
    resources: tuple[Resource, ...]
    accepted: dict[str, Resource]
    """What it has once it accepts."""


class Subscriptions:
    """One stream. ``rules`` are by type; types without one stand for themselves."""

    def __init__(self, rules: Mapping[str, Rule] | None = None) -> None:
        self._rules = rules or {}
        self._by_type: dict[str, _Subscription] = {}
        self._sent = 0

    def hear(self, request: Request) -> Answer | None:
        """Take in a request; what it says of a set, if anything. ``ProtocolError`` ends the stream."""
        found = self._by_type.get(request.type_url)
        is_first = found is None
        if found is None:
            if not request.type_url or len(self._by_type) >= MAX_TYPES:
                raise ProtocolError(f"a stream subscribes to 1 to {MAX_TYPES} types")
            found = self._by_type[request.type_url] = _Subscription()
        elif request.nonce != found.nonce:
            return None  # stale: it was said before the last set arrived
        if len(request.names) > MAX_NAMES:
            raise ProtocolError(f"more than {MAX_NAMES} resources of one type")
        found.names = frozenset(request.names)
        stated = Version.parse(request.version)
        in_use = str(stated) if stated is not None else ""
        version, found.under_way = found.under_way, None
        if version is None:
            if not is_first or stated is None:
                return None  # only the names have changed, or nothing is in use yet
            found.held = stated
            return Answer(request.type_url, stated, in_use)
        if request.refusal is not None:
            found.refused = version.digest
            return Answer(request.type_url, version, in_use, request.refusal)
        found.held, found.refused, found.accepted = version, "", found.sent
        return Answer(request.type_url, version, str(version))

    @property
    def types(self) -> frozenset[str]:
        """What is subscribed to."""
        return frozenset(self._by_type)

    @property
    def is_waiting(self) -> bool:
        """Whether the other side has not answered to something."""
        return any(each.under_way is not None for each in self._by_type.values())

    def due(self, snapshot: Snapshot) -> list[Response]:
        """What is to be sent now."""
        order = [*(each for each in self._rules if each in self._by_type)]
        order += [each for each in self._by_type if each not in self._rules]
        found = (self._next(type_url, snapshot) for type_url in order)
        return [response for response in found if response is not None]

    def _next(self, type_url: str, snapshot: Snapshot) -> Response | None:
        found, rule = self._by_type[type_url], self._rules.get(type_url, PLAIN)
        if found.under_way is not None:
            return None
        if not all(self._is_settled(other, snapshot) for other in rule.after):
            return None
        due = self._due(type_url, found, rule, snapshot)
        if due is None or found.refused == due.version.digest:
            return None
        if found.held is not None and snapshot.number < found.held.number:
            return None  # the other side knows more than this snapshot; see ``ahead``
        self._sent += 1
        found.nonce = str(self._sent)
        found.under_way, found.sent = due.version, due.accepted
        self._renew(type_url, found)
        return Response(type_url, str(due.version), found.nonce, due.resources)

    def _due(self, type_url: str, found: _Subscription, rule: Rule, snapshot: Snapshot) -> _Due | None:
        """What differs from what the other side has; None when nothing does."""
        if rule.by_name and not found.names:
            return None
        selected = snapshot.select(type_url, found.names)
        if selected is None:
            return None
        resources, digest = selected
        wanted = {resource.name: resource for resource in resources}
        known = found.accepted or {}
        if not all(self._has_taken(other, snapshot) for other in rule.kept_for):
            gone = tuple(each for name, each in known.items() if name not in wanted)
            if gone:
                resources = (*resources, *gone)
                wanted |= {each.name: each for each in gone}
                digest = digest_of(resources)
        is_held = found.held is not None and found.held.digest == digest
        if is_held and (found.accepted is None or not rule.by_name):
            found.accepted = wanted
            return None
        version = Version(snapshot.number, digest)
        if not rule.by_name:
            return _Due(version, resources, wanted)
        news = tuple(each for each in resources if known.get(each.name) != each)
        return _Due(version, news, wanted) if news else None

    def _renew(self, type_url: str, found: _Subscription) -> None:
        """What is changed begins anew at the other side, and so needs what it points at once more."""
        known = found.accepted or {}
        changed = [name for name, each in found.sent.items() if known.get(name, each) != each]
        for other, rule in self._rules.items():
            there = self._by_type.get(other)
            if changed and rule.named_by == type_url and there is not None:
                there.accepted = {n: e for n, e in (there.accepted or {}).items() if n not in changed}

    def _is_settled(self, type_url: str, snapshot: Snapshot) -> bool:
        """Whether the other side has answered to all there is to say of a type."""
        found, rule = self._by_type.get(type_url), self._rules.get(type_url, PLAIN)
        if found is None:
            return True
        if found.under_way is not None:
            return False
        if rule.named_by and not self._is_asked_for(type_url, found, rule, snapshot):
            return False
        due = self._due(type_url, found, rule, snapshot)
        return due is None or found.refused == due.version.digest

    def _is_asked_for(self, type_url: str, found: _Subscription, rule: Rule, snapshot: Snapshot) -> bool:
        """Whether all names are asked for, or nobody can expect that."""
        naming = self._by_type.get(rule.named_by)
        if naming is None or naming.held is None or naming.refused:
            return True
        return found.names >= snapshot.resources.get(type_url, {}).keys()

    def _has_taken(self, type_url: str, snapshot: Snapshot) -> bool:
        """Whether the other side uses what there is of a type."""
        found = self._by_type.get(type_url)
        if found is None:
            return True
        rule = self._rules.get(type_url, PLAIN)
        return found.under_way is None and self._due(type_url, found, rule, snapshot) is None

    @property
    def ahead(self) -> int:
        """The highest number in use at the other side; above the snapshot's it says that this is behind."""
        return max((each.held.number for each in self._by_type.values() if each.held is not None), default=0)
