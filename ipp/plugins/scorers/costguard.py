"""``costguard``: prefers the model whose answers have cost least, the rare expensive ones included.

A price for a million tokens says little of what an answer costs: a cheap model that says a lot may be the
dearest. So models are ranked by what their answers did cost, and models of which too little is known are
tried by a share of requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, pstdev
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.config.decode import Duration
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.costs import CostTable
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel

NEUTRAL: Final = 0.5
"""The score of models that nothing speaks for or against."""
CONFIDENCE: Final = 1.96
"""Standard deviations on either side that hold 95 of 100 values of a normal distribution."""


class CostguardParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    epsilon: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    """Share of requests that try a model by lot: one of which too little is known, where there is one."""
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95
    """Share of answers, the cheaper ones, that make up the body of the costs; the rest is the tail."""
    lambda_: Annotated[float, msgspec.Meta(ge=0, le=1000)] = msgspec.field(default=1.0, name="lambda")
    """Weight of the tail's mean beside that of the body."""
    percentile_margin_error: Annotated[float, msgspec.Meta(ge=0.001, le=0.5)] = 0.03
    """Half the width of the interval that ``alpha`` is to be known by with 95 percent confidence; the smaller
    it is the more answers it takes until a model is known."""
    window_duration: Duration | None = None
    """Without effect; set it on the model-cost-extractor, which keeps the costs."""


class Costguard:
    """Composes with other scorers: what it prefers is not certain to be taken."""

    info: ClassVar = PluginInfo("costguard", CostguardParams)
    needs: ClassVar = (CostTable,)

    def __init__(self, name: TypedName, params: CostguardParams, handle: Handle) -> None:
        self.name = name
        self._params = params
        self._rng = handle.rng
        self._clock = handle.clock
        self._costs = handle.data.table(CostTable)
        self.needed = answers_needed(params.alpha, params.percentile_margin_error)
        """Answers from which on a model is known."""
        self.warnings = (
            ["windowDuration has no effect here; set it on the model-cost-extractor"]
            if params.window_duration is not None
            else []
        )

    def score_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for the model to be tried and 0.5 for all others, or above 0.5 for what costs less than most."""
        now = self._clock()
        ranks = [self._rank(model.name, now) for model in candidates]
        if self._params.epsilon and self._rng.random() < self._params.epsilon:
            unknown = [at for at, rank in enumerate(ranks) if rank is None]
            tried = self._rng.choice(unknown or range(len(ranks)))
            return [1.0 if at == tried else NEUTRAL for at in range(len(ranks))]
        known = [rank for rank in ranks if rank is not None]
        spread = pstdev(known) if len(known) > 1 else 0.0
        if spread <= 0:
            return [NEUTRAL] * len(ranks)
        middle = median(known)
        return [NEUTRAL if rank is None else sigmoid((middle - rank) / spread) for rank in ranks]

    def _rank(self, model: str, now: float) -> float | None:
        """What the model's answers cost, in US dollars; None when too little is known."""
        window = self._costs.window(model, now)
        if window is None or window.count < self.needed:
            return None
        body, tail = window.means(self._params.alpha, now, self._costs.limits.flush_s)
        return body + self._params.lambda_ * tail


def answers_needed(alpha: float, margin: float) -> int:
    """Values that it takes to know the ``alpha`` quantile's share within the margin, 95 times in 100."""
    return math.ceil(CONFIDENCE**2 * alpha * (1 - alpha) / margin**2)


def sigmoid(x: float) -> float:
    """From 0 to 1, 0.5 at 0."""
    return 1 / (1 + math.exp(-max(min(x, 700.0), -700.0)))
