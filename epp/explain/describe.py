"""Decisions as JSON-able data, in the words of the scheduler: what the debug pages show and tools read.

A decision that was not traced shows what its arrays hold; a traced one shows more, under the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from epp.interfaces.endpoint import EndpointSpec
from epp.interfaces.scheduling import ProfileResult
from epp.interfaces.trace import COLUMNS, DecisionTrace, FilterStep, ProfileTrace, Removed, Rows

if TYPE_CHECKING:
    from epp.decisions import DecisionRecord

MAX_LISTED_CANDIDATES: Final = 32
"""Candidates shown of a decision that was not traced; the best are."""


def describe(record: DecisionRecord) -> dict[str, Any]:
    """One decision."""
    out = _plain(record)
    if record.trace is not None:
        out |= _traced(record.trace)
    elif record.result is not None:
        result = record.result
        out["destination"] = record.endpoints
        out["primaryProfile"] = result.primary
        out["decision"] = result.decision
        out["leftOut"] = list(result.left_out)
        out["profiles"] = {name: _profile(profile) for name, profile in result.results.items()}
    return out


def _plain(record: DecisionRecord) -> dict[str, Any]:
    return {
        "requestId": record.request_id,
        "traceId": record.trace_id,
        "decidedAt": record.decided_at,
        "model": record.model,
        "targetModel": record.target_model,
        "priority": record.priority,
        "fairnessId": record.fairness_id,
        "promptBytes": record.prompt_bytes,
        "config": record.config,
        "durationMs": round(record.duration_s * 1000, 4),
        "prefix": {
            "matchedBlocks": record.matched_blocks,
            "totalBlocks": record.total_blocks,
            "blockSizeTokens": record.block_size,
        },
        "traced": record.trace.origin.value if record.trace is not None else "",
        "error": record.error,
        "stage": record.stage,
        "response": {
            "status": record.status,
            "served": record.served,
            "ending": record.ending,
            "ttftMs": None if record.ttft_s is None else round(record.ttft_s * 1000, 3),
            "cachedTokens": record.cached_tokens,
        },
    }


def _profile(profile: ProfileResult) -> dict[str, Any]:
    endpoints = profile.candidates.endpoints
    order = np.argsort(-profile.totals, kind="stable")[:MAX_LISTED_CANDIDATES].tolist()
    return {
        "filters": [{"name": f.name, "before": f.before, "after": f.after} for f in profile.filters],
        "picked": [endpoint.key for endpoint in profile.endpoints],
        "candidates": [
            {
                "endpoint": endpoints[i].key,
                "total": round(float(profile.totals[i]), 6),
                "scores": {s.name: _score(float(s.scores[i]), s.weight) for s in profile.scorers},
            }
            for i in order
        ],
        "candidatesTotal": len(endpoints),
    }


def _score(score: float, weight: float) -> dict[str, float]:
    return {"score": round(score, 6), "weight": weight, "weighted": round(score * weight, 6)}


def _traced(trace: DecisionTrace) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "pool": {
            "endpoints": trace.pool,
            "candidates": trace.candidates,
            "gone": trace.gone,
            "ejected": trace.ejected,
        },
        "verdicts": [
            {
                "stage": v.stage,
                "plugin": v.plugin,
                "before": v.before,
                "after": v.after,
                "reason": v.reason,
                "removed": [_removed(removed) for removed in v.removed],
            }
            for v in trace.verdicts
        ],
        "prefixMatches": [
            {"producer": m.producer, "totalBlocks": m.total, "blockSizeTokens": m.block_size}
            for m in trace.matches
        ],
        "profiles": {profile.name: _traced_profile(profile, trace) for profile in trace.profiles},
    }
    if trace.incomplete:
        shown["incomplete"] = trace.incomplete
    if trace.destination:
        shown["destination"] = [spec.key for spec in trace.destination]
        shown["primaryProfile"] = trace.primary
        shown["prefillProfile"] = trace.prefill
        shown["decision"] = trace.decision
        shown["leftOut"] = trace.left_out
    return shown


def _traced_profile(profile: ProfileTrace, trace: DecisionTrace) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "filters": [_filter(step) for step in profile.filters],
        "picker": profile.picker,
        "error": profile.error,
    }
    rows = profile.rows
    if rows is None:
        return shown
    runner_up = profile.runner_up()
    return shown | {
        "picked": [spec.key for spec in profile.picked],
        "winner": _named(profile.picked[0]) | {"total": round(profile.won, 6)},
        "ties": profile.ties,
        "runnerUp": None
        if runner_up is None
        else _named(runner_up[0])
        | {"total": round(runner_up[1], 6), "margin": round(profile.won - runner_up[1], 6)},
        "candidates": [_row(rows, i, profile, trace) for i in rows.order()],
        "candidatesTotal": profile.candidates,
        "candidatesNotListed": profile.candidates - len(rows.specs),
    }


def _filter(step: FilterStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "before": step.before,
        "after": step.after,
        "removed": [_removed(removed) for removed in step.removed],
        "removedNotListed": step.before - step.after - len(step.removed),
    }


def _removed(removed: Removed) -> dict[str, Any]:
    return _named(removed.spec) | {"reason": removed.reason}


def _named(spec: EndpointSpec) -> dict[str, Any]:
    return {"endpoint": spec.key, "name": spec.id}


def _row(rows: Rows, i: int, profile: ProfileTrace, trace: DecisionTrace) -> dict[str, Any]:
    updated_at = float(rows.updated_at[i])
    columns = {name: float(values[i]) for name, values in zip(COLUMNS, rows.columns, strict=True)}
    scores = zip(profile.scorers, rows.scores, strict=True)
    matches = zip(trace.matches, rows.matched, strict=True)
    return _named(rows.specs[i]) | {
        "picked": i in rows.picked,
        "total": round(float(rows.totals[i]), 6),
        "scores": {name: _score(float(values[i]), weight) for (name, weight), values in scores},
        "matchedBlocks": {match.producer: float(matched[i]) for match, matched in matches},
        "dataAgeMs": round((trace.now - updated_at) * 1000, 1) if updated_at else None,
        "fresh": bool(columns["fresh"]),
        "trust": 1.0 if columns["fresh"] else round(columns["trust"], 4),
        "waiting": columns["waiting"],
        "running": columns["running"],
        "kvUsage": columns["kv_usage"],
        "unseen": int(columns["unseen"]),
        "inflight": int(columns["inflight"]),
        "inflightTokens": int(columns["inflight_tokens"]),
    }
