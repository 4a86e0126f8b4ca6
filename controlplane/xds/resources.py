"""What the database says, as resources of those who subscribe: a builder per kind of node and its types.

A builder reads its rows for all nodes of its kind in a few queries. Here nothing is cached and everything
blocks on the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from controlplane.configs.delivery import ConfigBuilder
from controlplane.configs.subjects import PICKERS, PROCESSORS
from controlplane.core import changes
from controlplane.core.kinds import KINDS
from controlplane.gateways.reading import GatewayReader
from controlplane.policies.delivery import GuardrailsBuilder
from controlplane.xds.envoy.resources import (
    GatewayShape,
    gateway_resources,
    no_resources,
    static_configuration,
)
from controlplane.xds.nodes import Audience, NodeKind
from dataplane.xds.codec import wrapped
from dataplane.xds.messages import POOL_OBJECTS, STATIC_GATEWAY, Resource
from epp.objects import schema

Resources = Mapping[str, Mapping[str, Resource]]
"""Type -> name -> resource."""

MAX_TRIES: Final = 5
BATCH: Final = 500
"""Pools asked for in one query."""


class Builder(Protocol):
    """Makes the resources of one kind of node."""

    def build(self, names: Collection[str]) -> Mapping[str, Resources]:
        """Name of an audience -> its resources, for all that are asked for."""


class PoolObjectsBuilder:
    """Objectives and model rewrites, as the documents that pickers read."""

    def build(self, pools: Collection[str]) -> Mapping[str, Resources]:
        """One resource per pool, empty where there is nothing for it."""
        documents: dict[str, list[Any]] = {pool: [] for pool in pools}
        for kind in (schema.OBJECTIVE, schema.REWRITE):
            service = KINDS.of(kind)
            if service is None:
                raise LookupError(kind)
            for batch in _batches(sorted(pools)):
                for row in service.model.objects.filter(pool__in=batch).order_by("name"):
                    document = service.document(row)
                    # Its age decides between rewrites; its version would only make equal sets differ.
                    metadata = {"name": row.name, "creationTimestamp": row.created_at.isoformat()}
                    if row.labels:
                        metadata["labels"] = row.labels
                    documents[row.pool].append({**document, "metadata": metadata})
        return {pool: {POOL_OBJECTS: {pool: _encoded(pool, found)}} for pool, found in documents.items()}


def _encoded(pool: str, documents: list[Any]) -> Resource:
    return Resource(pool, wrapped(msgspec.json.encode({"documents": documents}, order="sorted")))


class GatewayBuilder:
    """All that Envoys are told, and the same as one configuration."""

    def __init__(self) -> None:
        self._reader = GatewayReader()

    def build(self, gateways: Collection[str]) -> Mapping[str, Resources]:
        """Of a gateway that is not there: nothing of each type."""
        found = self._reader.read(gateways)
        return {name: _gateway(name, found.get(name)) for name in gateways}


def _gateway(name: str, shape: GatewayShape | None) -> Resources:
    if shape is None:
        return no_resources() | {STATIC_GATEWAY: {}}
    static = Resource(name, wrapped(msgspec.json.encode(static_configuration(shape))))
    return gateway_resources(shape) | {STATIC_GATEWAY: {name: static}}


BUILDERS: Final[Mapping[NodeKind, tuple[Builder, ...]]] = {
    NodeKind.PICKER: (PoolObjectsBuilder(),),
    NodeKind.GATEWAY: (GatewayBuilder(),),
    NodeKind.WORKER: (ConfigBuilder(PICKERS),),
    NodeKind.PROCESSOR_WORKER: (ConfigBuilder(PROCESSORS), GuardrailsBuilder()),
}
"""Of each kind of node; no two of a kind make the same type."""


def build(audiences: Collection[Audience]) -> tuple[int, dict[Audience, Resources]]:
    """Number of the last change that is seen, and the resources of each audience, all of one moment."""
    for _ in range(MAX_TRIES):
        number = changes.current()
        found = {audience: resources for kind in NodeKind for audience, resources in _build(kind, audiences)}
        if changes.current() == number:
            break
    # After so many tries somebody changes things all the time: what is missing comes with the next change.
    return number, found


def _build(kind: NodeKind, audiences: Collection[Audience]) -> Iterable[tuple[Audience, Resources]]:
    names = {audience.name for audience in audiences if audience.kind == kind}
    built = [builder.build(names) for builder in BUILDERS.get(kind, ()) if names]
    for name in names:
        merged = {type_url: each for part in built for type_url, each in part[name].items()}
        yield Audience(kind, name), merged


def _batches(pools: list[str]) -> Iterable[list[str]]:
    return (pools[start : start + BATCH] for start in range(0, len(pools), BATCH))
