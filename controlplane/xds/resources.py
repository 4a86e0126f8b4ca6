"""What the database says, as resources of workers: one builder per type, asked for many pools at once.

A builder reads its rows for all pools in a few queries. Here nothing is cached and everything blocks on the
database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from controlplane.core import changes
from controlplane.core.kinds import KINDS
from dataplane.xds.codec import wrapped
from dataplane.xds.messages import POOL_OBJECTS, Resource
from epp.objects import schema

Resources = Mapping[str, Mapping[str, Resource]]
"""Type -> name -> resource."""

MAX_TRIES: Final = 5
BATCH: Final = 500
"""Pools asked for in one query."""


class Builder(Protocol):
    """Makes the resources of one type."""

    type_url: str

    def build(self, pools: Collection[str]) -> Mapping[str, Mapping[str, Resource]]:
        """Pool -> name -> resource, for every pool that is asked for."""


class PoolObjectsBuilder:
    """Objectives and model rewrites, as the documents that pickers read."""

    type_url = POOL_OBJECTS

    def build(self, pools: Collection[str]) -> Mapping[str, Mapping[str, Resource]]:
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
        return {
            pool: {pool: Resource(pool, wrapped(msgspec.json.encode({"documents": found}, order="sorted")))}
            for pool, found in documents.items()
        }


BUILDERS: Final[tuple[Builder, ...]] = (PoolObjectsBuilder(),)


def build(pools: Collection[str]) -> tuple[int, dict[str, Resources]]:
    """Number of the last change that is seen, and the resources of each pool, all of one moment."""
    for _ in range(MAX_TRIES):
        number = changes.current()
        built = [(builder.type_url, builder.build(pools)) for builder in BUILDERS]
        if changes.current() == number:
            break
    # After so many tries somebody changes things all the time: what is missing comes with the next change.
    return number, {pool: {type_url: found[pool] for type_url, found in built} for pool in pools}


def _batches(pools: list[str]) -> Iterable[list[str]]:
    return (pools[start : start + BATCH] for start in range(0, len(pools), BATCH))
