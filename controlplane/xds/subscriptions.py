"""The control plane's side of the conversation with one worker or Envoy: what a request means, what to send.

No I/O and no clock. Of each type one set is under way at a time: while the other side has not answered, newer
sets replace one another, and only the newest is sent next. Nothing is sent twice: not what is in use, and not
what was refused, unless something in it has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dataplane.xds.messages import Refusal, Request, Resource, Response, Version, digest_of

MAX_TYPES: Final = 16
MAX_NAMES: Final = 20_000
"""Resources of one type that a stream may name."""


class ProtocolError(Exception):
    """What was said makes no sense, or is more than is served; the stream ends."""


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
        chosen = tuple(there.values()) if not names else tuple(there[n] for n in sorted(names & there.keys()))
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


class Subscriptions:
    """One stream."""

    def __init__(self) -> None:
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
        found.held, found.refused = version, ""
        return Answer(request.type_url, version, str(version))

    def due(self, snapshot: Snapshot) -> list[Response]:
        """What is to be sent now."""
        found = (self._next(type_url, each, snapshot) for type_url, each in self._by_type.items())
        return [response for response in found if response is not None]

    def _next(self, type_url: str, found: _Subscription, snapshot: Snapshot) -> Response | None:
        if found.under_way is not None:
            return None
        selected = snapshot.select(type_url, found.names)
        if selected is None:
            return None
        resources, digest = selected
        if found.refused == digest or (found.held is not None and found.held.digest == digest):
            return None
        if found.held is not None and snapshot.number < found.held.number:
            return None  # the other side knows more than this snapshot; see ``ahead``
        self._sent += 1
        found.nonce = str(self._sent)
        found.under_way = Version(snapshot.number, digest)
        return Response(type_url, str(found.under_way), found.nonce, resources)

    @property
    def ahead(self) -> int:
        """The highest number in use at the other side; above the snapshot's it says that this is behind."""
        return max((each.held.number for each in self._by_type.values() if each.held is not None), default=0)
