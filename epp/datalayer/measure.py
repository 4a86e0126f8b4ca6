"""Writes what a scrape found into the columns and attributes of the endpoint table."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from dataplane.plugin.base import DataKey
from epp.interfaces.data_layer import Measurements
from epp.interfaces.endpoint import Endpoint, EndpointTable


def refuse_undeclared(
    attributes: Mapping[DataKey[Any], Any] | None, declared: AbstractSet[DataKey[Any]]
) -> None:
    """``ValueError`` for attributes that their producer does not declare: nobody would ever drop them."""
    if attributes is not None and not attributes.keys() <= declared:
        names = ", ".join(sorted(map(str, attributes.keys() - declared)))
        raise ValueError(f"{names} is not among what it declares to produce")


def apply(table: EndpointTable, endpoint: Endpoint, found: Measurements) -> bool:
    """Write the fields that were found; say whether they make the row fresh.

    A row is as fresh as its queue: when the engine should report a queue and did not, the other fields are
    written but the row goes stale, because an old queue length would pass for a present one.
    """
    slot = endpoint.slot
    if found.attributes is not None:
        for key, value in found.attributes.items():
            table.attributes.put(slot, key, value)
    if found.waiting is not None:
        table.waiting[slot] = found.waiting
    if found.running is not None:
        table.running[slot] = found.running
    if found.kv_usage is not None:
        table.kv_usage[slot] = found.kv_usage
    if found.block_size is not None:
        table.block_size[slot] = found.block_size
    if found.num_blocks is not None:
        table.num_blocks[slot] = found.num_blocks
    if found.active_models is not None:
        endpoint.active_models = found.active_models
    if found.waiting_models is not None:
        endpoint.waiting_models = found.waiting_models
    if found.max_active_models is not None:
        endpoint.max_active_models = found.max_active_models
    if found.missing is not None and "waiting" in found.missing:
        return False
    return found.waiting is not None or found.running is not None or found.kv_usage is not None
