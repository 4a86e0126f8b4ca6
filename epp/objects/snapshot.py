"""What all objects of a pool say together, compiled for one look-up per request.

A snapshot never changes: whoever learns of new objects builds another one and puts it into the holder, in one
assignment. A request asks the snapshot once, so it never sees a mixture.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from epp.objects.model import InferenceObjective, ModelRewrite, RewriteTarget


class Rewrite(NamedTuple):
    """What was decided for one request."""

    rewrite: str
    """Name of the object whose rule decided."""
    target: str
    """Name of the model on the model servers."""


class _Choice:
    """The targets of one rule, to be chosen from by weight."""

    __slots__ = ("_bounds", "_outcomes")

    def __init__(self, rewrite: str, targets: Sequence[RewriteTarget]) -> None:
        weighted = [target for target in targets if target.weight is not None] or targets
        self._outcomes = [Rewrite(rewrite, target.model_rewrite) for target in weighted]
        self._bounds = list(accumulate(target.weight or 1 for target in weighted))

    def pick(self, rng: random.Random) -> Rewrite:
        outcomes = self._outcomes
        if len(outcomes) == 1:
            return outcomes[0]
        return outcomes[bisect_right(self._bounds, rng.randrange(self._bounds[-1]))]


class PoolObjects:
    """One pool's objectives and rewrites. Of two objectives with one name the last counts."""

    __slots__ = (
        "_exact",
        "_generic",
        "_priorities",
        "models",
        "objectives",
        "rewrites",
        "targets",
    )

    def __init__(
        self, objectives: Iterable[InferenceObjective] = (), rewrites: Iterable[ModelRewrite] = ()
    ) -> None:
        self.objectives = {objective.name: objective for objective in objectives}
        """By name."""
        self.rewrites = tuple(sorted(rewrites, key=lambda rewrite: (rewrite.created_at, rewrite.name)))
        """In order of precedence: the oldest first, of one age by name."""
        self._priorities = {name: objective.priority for name, objective in self.objectives.items()}
        self._exact: dict[str, _Choice] = {}
        self._generic: _Choice | None = None
        for rewrite in self.rewrites:
            for rule in rewrite.rules:
                choice = _Choice(rewrite.name, rule.targets)
                if not rule.matches:
                    self._generic = self._generic or choice
                for model in rule.matches:
                    self._exact.setdefault(model, choice)
        self.models = frozenset(self._exact)
        """Every requested name that a rule matches exactly."""
        self.targets = frozenset(
            target.model_rewrite
            for rewrite in self.rewrites
            for rule in rewrite.rules
            for target in rule.targets
        )
        """Every model name that a rule may choose."""

    def priority_of(self, objective: str) -> int:
        """The priority of a request with this objective header; 0 for none and for unknown ones."""
        return self._priorities.get(objective, 0)

    def rewrite(self, model: str, rng: random.Random) -> Rewrite | None:
        """What a request for ``model`` (``""`` when it names none) is served by; None: as the request says.

        An exact rule precedes a generic one, an older object a newer one, an earlier rule a later one.
        """
        choice = self._exact.get(model) or self._generic
        return None if choice is None else choice.pick(rng)


NO_OBJECTS = PoolObjects()


class ObjectHolder:
    """Where the director finds the current snapshot. Owned by the event loop's thread."""

    __slots__ = ("current",)

    def __init__(self, current: PoolObjects = NO_OBJECTS) -> None:
        self.current = current
        """Replaced as a whole, never changed."""
