"""Which revisions of guardrail policies each payload processor should have in force, as one set.

A processor takes a set as a whole or not at all. Most have the same one: the active revision of each policy.
Those that a rollout reaches have its revision instead, and keep it once they run it. The database is asked a
fixed number of questions, and a few more for each rollout under way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from django.db.models import F, Q

from controlplane.configs import workers
from controlplane.configs.models import ConfigDocument, Rollout, Running
from controlplane.configs.rollout import SPREADING, State, desired_number
from controlplane.configs.workers import Desired, Key, Pair
from controlplane.policies.models import GuardrailPolicy

BATCH: Final = 500

Numbers = dict[int, int]
"""Key of a policy -> number of its revision."""


class Wanted:
    """What processors should have in force."""

    def __init__(self, pairs: Collection[Pair]) -> None:
        """Processors whom a rollout reaches are noted as having been sent its revision."""
        self._policies: dict[int, ConfigDocument] = {
            row.pk: row for row in GuardrailPolicy.objects.select_related("active").order_by("name")
        }
        self._rollouts = workers.newest_rollouts(self._policies.values())
        numbers = self._numbers({worker for worker, _ in pairs})
        keys = {key for each in numbers.values() for key in each.items()}
        self._contents = workers.contents(self._policies, keys)
        self._of_worker = {worker: self._published(each) for worker, each in numbers.items()}

    def of(self, worker: str) -> tuple[Key, ...]:
        """The worker's set: policies by name, each with the number of its revision."""
        return self._of_worker[worker]

    def revision(self, key: Key) -> Desired:
        """A revision of a set."""
        return self._contents[key]

    def _published(self, numbers: Numbers) -> tuple[Key, ...]:
        return tuple((pk, numbers[pk]) for pk in self._policies if (pk, numbers.get(pk, 0)) in self._contents)

    def _numbers(self, worker_ids: Collection[str]) -> dict[str, Numbers]:
        """By worker."""
        active = {pk: row.active.number for pk, row in self._policies.items() if row.active is not None}
        found = {worker: dict(active) for worker in worker_ids}
        ahead = _ahead(worker_ids)
        for worker, each in ahead.items():
            found[worker] |= each
        for pk, rollout in self._rollouts.items():
            if rollout.stage not in SPREADING:
                continue
            row = self._policies[pk]
            state = workers.reach(row, rollout, worker_ids)
            for worker in worker_ids:
                number = _number(state, rollout, worker, active.get(pk), ahead.get(worker, {}).get(pk))
                if number is not None:
                    found[worker][pk] = number
        return found


def _number(state: State, rollout: Rollout, worker: str, active: int | None, ahead: int | None) -> int | None:
    return desired_number(state, rollout.revision.number, worker, active=active, applied=ahead)


def _ahead(worker_ids: Iterable[str]) -> dict[str, Numbers]:
    """Revisions that workers run and that are newer than the active ones."""
    found: dict[str, Numbers] = defaultdict(dict)
    listed = sorted(worker_ids)
    is_newer = Q(document__active=None) | Q(revision__number__gt=F("document__active__number"))
    for start in range(0, len(listed), BATCH):
        rows = Running.objects.filter(is_newer, worker__node_id__in=listed[start : start + BATCH])
        for worker, pk, number in rows.values_list("worker__node_id", "document_id", "revision__number"):
            found[worker][pk] = number
    return found
