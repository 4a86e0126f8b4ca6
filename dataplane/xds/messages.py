"""What control plane and workers say to one another, as plain values: state-of-the-world xDS.

A subscriber names a type and, where it does not want everything, the resources; it is sent all of them, as
one set with a version, whenever one of them is another. It answers each set by its nonce: with the set's
version (ACK), or with the version it keeps and what is wrong (NACK).

Versions of ours are ``NUMBER.DIGEST``: a number that rises with every change of the configuration, and the
digest of the set. Two sets with one digest are the same, so the digest says whether anything is new, and the
number which of two sets is newer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from dataplane.errors import ConfigError

POOL_OBJECTS: Final = "type.pointsman.dev/pointsman.v1.PoolObjects"
"""The objectives and model rewrites of a pool. The resource is named as the pool; a message with one field of
bytes, number 1: JSON ``{"documents": [...]}``."""
PICKER_CONFIG: Final = "type.pointsman.dev/pointsman.v1.EndpointPickerConfig"
"""The configuration a picker is to run. The resource is named as the pool; none means that of the picker's
own flags. A message with one field of bytes, number 1: JSON ``{"content": {...}, "digest": ...,
"document": ..., "revision": N, "rollout": N}``; ``digest`` is the SHA-256 of ``content`` as it is written."""
PROCESSOR_CONFIG: Final = "type.pointsman.dev/pointsman.v1.PayloadProcessorConfig"
"""The configuration a payload processor is to run. The resource is named as the processor; a message as that
of a picker's configuration."""
GUARDRAILS: Final = "type.pointsman.dev/pointsman.v1.Guardrails"
"""The guardrail policies a processor is to enforce, and the pools they choose by. The resource is named as
the processor; a message with one field of bytes, number 1: JSON ``{"policies": [{"name", "spec", "revision",
"rollout"}], "pools": [{"name", "models", "urls"}]}``."""

STATIC_GATEWAY: Final = "type.pointsman.dev/pointsman.v1.StaticGateway"
"""Everything of a gateway as one Envoy configuration, for starts without a control plane. The resource is
named as the gateway; a message with one field of bytes, number 1: JSON, with the private key."""

ADS_METHOD: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

MAX_PROBLEMS: Final = 50
"""Mistakes told in one NACK."""
MAX_PROBLEM_CHARACTERS: Final = 500
MAX_NUMBER: Final = (1 << 53) - 1
DIGEST_CHARACTERS: Final = 32

_VERSION: Final = re.compile(rf"(\d{{1,16}})\.([0-9a-f]{{{DIGEST_CHARACTERS}}})", re.ASCII)


class Version(NamedTuple):
    """Which state of a set of resources."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}.{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """The version that was written; None for anything else, such as that of another server."""
        found = _VERSION.fullmatch(text)
        if found is None or int(found[1]) > MAX_NUMBER:
            return None
        return cls(int(found[1]), found[2])


class Node(msgspec.Struct, frozen=True):
    """Who subscribes."""

    id: str = ""
    cluster: str = ""
    """Of ours: the pool, or the payload processor."""
    metadata: dict[str, Any] = {}


class Resource(msgspec.Struct, frozen=True):
    """One configured thing."""

    name: str
    value: bytes
    """The message of its type, serialised."""


class Problem(msgspec.Struct, frozen=True):
    """One mistake in a refused set."""

    path: str
    message: str

    @classmethod
    def of(cls, error: ConfigError) -> Problem:
        """A mistake as it is told, cut to a size."""
        return cls(error.path[:MAX_PROBLEM_CHARACTERS], error.message[:MAX_PROBLEM_CHARACTERS])


class Refusal(msgspec.Struct, frozen=True):
    """Why a set is refused."""

    message: str
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, errors: Iterable[ConfigError]) -> Refusal:
        """The refusal for everything that is wrong, the first ``MAX_PROBLEMS`` mistakes told."""
        problems = [Problem.of(error) for error in errors]
        first = problems[0]
        text = f"{first.path}: {first.message}" if first.path else first.message
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return cls(text + more, tuple(problems[:MAX_PROBLEMS]))


class Request(msgspec.Struct, frozen=True):
    """From the subscriber: what it wants, what it has, and what it thinks of what it was sent."""

    type_url: str
    version: str = ""
    """Of the set it uses; empty = none."""
    nonce: str = ""
    """Of the set it answers; empty = it answers none."""
    names: tuple[str, ...] = ()
    """Resources wanted; empty = all."""
    node: Node | None = None
    """In the first request of a stream at least."""
    refusal: Refusal | None = None


class Response(msgspec.Struct, frozen=True):
    """To the subscriber: everything it asked for of one type."""

    type_url: str
    version: str
    nonce: str
    resources: tuple[Resource, ...]


def digest_of(resources: Iterable[Resource]) -> str:
    """What tells two sets apart, whatever their order."""
    found = hashlib.sha256()
    for resource in sorted(resources, key=lambda each: each.name):
        for part in (resource.name.encode("utf-8", "surrogateescape"), resource.value):
            found.update(len(part).to_bytes(8))
            found.update(part)
    return found.hexdigest()[:DIGEST_CHARACTERS]
