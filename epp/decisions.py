"""The last decisions, kept for people who ask why.

A ring buffer of references: recording costs one object, and text is made only when somebody reads, one record
at a time. Records hold no body, prompt or header but the request id, the model and the fairness id; these are
the client's to choose, so they are cut to ``MAX_TEXT`` and cleaned of what JSON cannot say.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from epp.interfaces.scheduling import ProfileResult, SchedulingResult

MAX_LISTED_CANDIDATES: Final = 32
"""Candidates shown per decision; the best are kept."""

MAX_TEXT: Final = 256
"""Characters kept of a text that a client chose."""


class DecisionRecord(msgspec.Struct):
    """One decision. ``ended_at`` etc. are filled in when the response is over."""

    request_id: str
    decided_at: float
    """Seconds since the epoch."""
    model: str
    target_model: str
    priority: int
    fairness_id: str
    prompt_bytes: int
    duration_s: float
    """Time from the complete body to the decision."""
    config: str = ""
    """Revision of the configuration that decided."""
    result: SchedulingResult | None = None
    error: str = ""
    matched_blocks: float = 0.0
    total_blocks: int = 0
    block_size: int = 0
    served: str = ""
    status: int = 0
    ending: str = ""
    ttft_s: float | None = None
    cached_tokens: int | None = None


class DecisionLog:
    """Bounded history of decisions, newest last."""

    def __init__(self, size: int, wall_clock: Callable[[], float] = time.time) -> None:
        self._records: deque[DecisionRecord] = deque(maxlen=size)
        self._wall_clock = wall_clock

    def add(self, record: DecisionRecord) -> None:
        """Keep a record; the oldest makes room."""
        record.decided_at = self._wall_clock()
        chosen = f"{record.request_id}{record.model}{record.target_model}{record.fairness_id}"
        if len(chosen) > MAX_TEXT or not chosen.isascii():
            record.request_id = clean(record.request_id)
            record.model = clean(record.model)
            record.target_model = clean(record.target_model)
            record.fairness_id = clean(record.fairness_id)
        self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def recent(self, limit: int = 20) -> Iterator[dict[str, Any]]:
        """The newest ``limit`` decisions as JSON-able data, newest first, made one by one."""
        return map(describe, list(islice(reversed(self._records), limit)))

    def find(self, request_id: str) -> Iterator[dict[str, Any]]:
        """Every kept decision of this request id, newest first; ids are the client's, so not unique."""
        wanted = clean(request_id)
        return map(describe, [r for r in reversed(self._records) if r.request_id == wanted])


def clean(text: str) -> str:
    """At most ``MAX_TEXT`` characters; those that are no Unicode text, such as stray bytes, become "?"."""
    if text.isascii() and len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def describe(record: DecisionRecord) -> dict[str, Any]:
    """One decision in the words of the scheduler."""
    out = _plain(record)
    result = record.result
    if result is not None:
        out["destination"] = [endpoint.key for endpoint in result.endpoints]
        out["primaryProfile"] = result.primary
        out["profiles"] = {name: _profile(profile) for name, profile in result.results.items()}
    return out


def _plain(record: DecisionRecord) -> dict[str, Any]:
    return {
        "requestId": record.request_id,
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
        "error": record.error,
        "response": {
            "status": record.status,
            "served": record.served,
            "ending": record.ending,
            "ttftMs": None if record.ttft_s is None else round(record.ttft_s * 1000, 3),
            "cachedTokens": record.cached_tokens,
        },
    }


def _profile(profile: ProfileResult) -> dict[str, Any]:
    keys = [endpoint.key for endpoint in profile.candidates.endpoints]
    order = sorted(range(len(keys)), key=lambda i: -profile.totals[i])[:MAX_LISTED_CANDIDATES]
    return {
        "filters": [{"name": f.name, "before": f.before, "after": f.after} for f in profile.filters],
        "picked": [endpoint.key for endpoint in profile.endpoints],
        "candidates": [
            {
                "endpoint": keys[i],
                "total": round(float(profile.totals[i]), 6),
                "scores": {
                    s.name: {"score": round(float(s.scores[i]), 6), "weight": s.weight}
                    for s in profile.scorers
                },
            }
            for i in order
        ],
        "candidatesTotal": len(keys),
    }
