"""The worker's side of the conversation: what to ask for, and what to answer to what it is sent.

No I/O and no clock. What the worker uses of each type is ``held``; it changes by ``accept`` alone, and its
number never falls. A stream begins with ``connect``: nonces belong to streams, versions outlive them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dataplane.errors import ConfigError
from dataplane.xds.messages import Node, Refusal, Request, Resource, Response, Version, digest_of


class Held(msgspec.Struct, frozen=True):
    """A set of resources that is in use, or was, and may be again."""

    version: Version
    resources: tuple[Resource, ...]


class Offer(msgspec.Struct, frozen=True):
    """A set the worker has to judge: ``accept`` it or ``refuse`` it, before the next response is read."""

    type_url: str
    nonce: str
    held: Held
    changed: bool
    """False: the set is the one in use already, only its number is another."""


class Subscriber:
    """One worker's subscriptions, to fixed names of each type."""

    def __init__(
        self, node: Node, wants: Mapping[str, tuple[str, ...]], held: Mapping[str, Held] | None = None
    ) -> None:
        self._node = node
        self._wants = wants
        self._held = dict(held or {})
        self._greeted = False
        """Whether this stream has heard who we are."""

    @property
    def types(self) -> frozenset[str]:
        """What is subscribed to."""
        return frozenset(self._wants)

    @property
    def held(self) -> Mapping[str, Held]:
        """Type -> what is in use."""
        return self._held

    def connect(self) -> list[Request]:
        """The first requests of a new stream."""
        self._greeted = False
        return [self._request(type_url) for type_url in self._wants]

    def receive(self, response: Response) -> Offer | Request:
        """A set to judge, or the answer where there is nothing to judge."""
        version = Version.parse(response.version)
        wrong = self._wrong(response, version)
        if wrong is not None or version is None:
            return self._request(response.type_url, response.nonce, Refusal.of([wrong or _UNREADABLE]))
        held = self._held.get(response.type_url)
        changed = held is None or held.version.digest != version.digest
        return Offer(response.type_url, response.nonce, Held(version, response.resources), changed)

    def _wrong(self, response: Response, version: Version | None) -> ConfigError | None:
        wants = self._wants.get(response.type_url)
        if wants is None:
            return ConfigError("was not asked for", path="type_url")
        if version is None:
            return _UNREADABLE
        if digest_of(response.resources) != version.digest:
            return ConfigError("the resources are not those of the version's digest", path="resources")
        names = [resource.name for resource in response.resources]
        if wants and (strange := sorted({*names} - {*wants})):
            return ConfigError(f"{strange[0][:60]!r} was not asked for", path="resources")
        if len(set(names)) < len(names):
            return ConfigError("a name is there twice", path="resources")
        held = self._held.get(response.type_url)
        if held is not None and version.number < held.version.number:
            return ConfigError(
                f"{version.number} is older than {held.version.number}, which is in use", path="version_info"
            )
        return None

    def accept(self, offer: Offer) -> Request:
        """The set is in use: the answer that says so."""
        self._held[offer.type_url] = offer.held
        return self._request(offer.type_url, offer.nonce)

    def refuse(self, offer: Offer, problems: Sequence[ConfigError]) -> Request:
        """Something is wrong with the set and the earlier one stays: the answer that says so."""
        return self._request(offer.type_url, offer.nonce, Refusal.of(problems))

    def _request(self, type_url: str, nonce: str = "", refusal: Refusal | None = None) -> Request:
        held = self._held.get(type_url)
        node, self._greeted = (None if self._greeted else self._node), True
        return Request(
            type_url,
            "" if held is None else str(held.version),
            nonce,
            self._wants.get(type_url, ()),
            node,
            refusal,
        )


_UNREADABLE = ConfigError("is no version of a Pointsman control plane", path="version_info")
