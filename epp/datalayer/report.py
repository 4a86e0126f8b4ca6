"""The endpoint table as people look at it: what is known of each endpoint, how old it is, what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from dataplane.clock import Clock
from epp.interfaces.endpoint import Endpoint, EndpointTable


def describe_endpoints(
    table: EndpointTable,
    clock: Clock,
    limit: int,
    problem: Callable[[Endpoint], str],
    discovery_problems: Sequence[str],
    health: Callable[[Endpoint], dict[str, Any]],
) -> dict[str, Any]:
    """JSON-able: the first ``limit`` rows by slot.

    ``problem`` says what is wrong with a row's metrics, ``health`` what its requests have shown.
    """
    now = clock()
    rows = table.all().endpoints
    return {
        "total": len(table),
        "fresh": len(table) - table.stale,
        "truncated": len(table) > limit,
        "discoveryProblems": list(discovery_problems),
        "endpoints": [_row(table, row, now, problem(row)) | health(row) for row in islice(rows, limit)],
    }


def _row(table: EndpointTable, endpoint: Endpoint, now: float, problem: str) -> dict[str, Any]:
    slot, spec = endpoint.slot, endpoint.spec
    updated_at = float(table.updated_at[slot])
    return {
        "name": spec.name,
        "namespace": spec.namespace,
        "address": endpoint.key,
        "labels": dict(spec.labels),
        "annotations": dict(spec.annotations),
        "models": list(spec.models),
        "rank": spec.rank,
        "metricsAddress": spec.metrics_host or endpoint.key,
        "fresh": bool(table.fresh[slot]),
        "trust": 1.0 if table.fresh[slot] else round(float(table.trust[slot]), 3),
        "listens": not table.gone[slot],
        "dataAgeMs": round((now - updated_at) * 1000, 1) if updated_at else None,
        "problem": problem,
        "waiting": float(table.waiting[slot]),
        "running": float(table.running[slot]),
        "kvUsage": float(table.kv_usage[slot]),
        "inflight": int(table.inflight[slot]),
        "inflightTokens": int(table.inflight_tokens[slot]),
        "unseen": int(table.unseen[slot]),
        "blockSizeTokens": int(table.block_size[slot]) or None,
        "blocks": int(table.num_blocks[slot]) or None,
        "activeModels": sorted(endpoint.active_models),
        "waitingModels": sorted(endpoint.waiting_models),
        "maxActiveModels": endpoint.max_active_models,
        "attributes": msgspec.to_builtins(table.attributes.of(slot)),
    }
