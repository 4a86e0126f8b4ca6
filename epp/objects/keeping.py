"""What is in the holder and what is said of it, wherever the objects come from.

Files and the control plane bring readings; here they are put into use, counted, logged, and shown on the
admin page and in the metrics. Owned by the event loop's thread.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dataplane.observability.exposition import MetricSet
from epp.objects import schema
from epp.objects.documents import UNDATED_S
from epp.objects.files import Kept, Reading
from epp.objects.model import InferenceObjective, ModelRewrite
from epp.objects.snapshot import ObjectHolder, PoolObjects

log = logging.getLogger(__name__)

MAX_SAID: Final = 100
"""Problems, notes and skipped documents that are kept for the admin page, each."""
MAX_LOGGED: Final = 20

PREFIX: Final = "pointsman_epp_objects"


class ObjectKeeper:
    """Owns what is in the holder."""

    def __init__(
        self, holder: ObjectHolder, metrics: MetricSet, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._holder = holder
        self._wall_clock = wall_clock
        self.reading = Reading()
        """What is in use."""
        self.failure: tuple[str, ...] = ()
        """Why the last reading was impossible, or refused, as a whole."""
        self.applied_at = 0.0
        self._reloads = metrics.counter(
            PREFIX + "_reloads_total", "Readings of the objects by outcome.", ("outcome",)
        )
        metrics.computed(PREFIX, "Objects in use by kind.", ("kind",), self._counts)
        metrics.computed(
            PREFIX + "_problems",
            "What is wrong with the documents of the objects.",
            (),
            lambda: [((), len(self.problems))],
        )

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with the documents as they are."""
        return (*self.failure, *self.reading.problems)

    def apply(self, reading: Reading, snapshot: PoolObjects | None) -> None:
        """Put a reading into use; ``snapshot`` is that of its objects, None: they are those in use."""
        before, self.reading, self.failure = self.reading, reading, ()
        self._reloads.child("unchanged" if snapshot is None else "applied").value += 1
        if snapshot is not None:
            self._holder.current = snapshot
            self.applied_at = self._wall_clock()
            counts = ", ".join(f"{count} {kind}" for (kind,), count in self._counts())
            log.info("objects in use: %s", counts)
        for level, said, earlier in (
            (logging.ERROR, reading.problems, before.problems),
            (logging.WARNING, reading.notes, before.notes),
            (logging.INFO, reading.skipped, before.skipped),
        ):
            if said != earlier:
                _log(level, said)

    def refuse(self, outcome: str, failure: Sequence[str]) -> None:
        """Leave everything as it is, and keep why."""
        self._reloads.child(outcome).value += 1
        said = tuple(failure[:MAX_SAID])
        if self.failure != said and outcome == "refused":
            for each in said[:MAX_LOGGED]:
                log.error("the objects there are stay: %s", each)
        self.failure = said

    def _counts(self) -> list[tuple[tuple[str], float]]:
        kinds = Counter(kind for kind, _ in self.reading.objects)
        return [((kind,), kinds[kind]) for kind in schema.VERSIONS]

    def describe(self, limit: int, ports: Iterable[int] = ()) -> dict[str, Any]:
        """JSON-able: the objects in use, at most ``limit`` of a kind, where they are from, what is wrong.

        ``ports`` are those of the pool's endpoints, to be held against what a document says of the pool.
        """
        kept = list(self.reading.objects.values())
        objectives = [(each, each.value) for each in kept if isinstance(each.value, InferenceObjective)]
        rewrites = [(each, each.value) for each in kept if isinstance(each.value, ModelRewrite)]
        pool = self.reading.pool()
        return {
            "appliedAt": self.applied_at,
            "problems": list(self.problems[:MAX_SAID]),
            "skipped": list(self.reading.skipped[:MAX_SAID]),
            "notes": list(self.reading.notes[:MAX_SAID]),
            "pool": None
            if pool is None
            else {
                "name": pool.name,
                "targetPorts": list(pool.target_ports),
                "appProtocol": pool.app_protocol,
                "failureMode": pool.failure_mode,
                "endpointsAtOtherPorts": sum(port not in pool.target_ports for port in ports),
            },
            "totalObjectives": len(objectives),
            "objectives": [
                {"name": value.name, "priority": value.priority, **_source(each)}
                for each, value in objectives[:limit]
            ],
            "totalRewrites": len(rewrites),
            "rewrites": [_rewrite(value) | _source(each) for each, value in rewrites[:limit]],
        }


def _log(level: int, said: Sequence[str]) -> None:
    for each in said[:MAX_LOGGED]:
        log.log(level, "%s", each)
    if len(said) > MAX_LOGGED:
        log.log(level, "and %d more like it", len(said) - MAX_LOGGED)


def _source(kept: Kept) -> dict[str, Any]:
    return {"file": kept.file, "document": kept.place, "outdated": kept.outdated}


def _rewrite(value: ModelRewrite) -> dict[str, Any]:
    dated = value.created_at < UNDATED_S
    return {
        "name": value.name,
        "createdAt": value.created_at if dated else None,
        "rules": [
            {
                "matches": list(rule.matches),
                "targets": [
                    {"modelRewrite": target.model_rewrite, "weight": target.weight} for target in rule.targets
                ],
            }
            for rule in value.rules
        ],
    }
