"""Prefer cheap endpoints: score by what an hour costs according to a label.

The cheapest candidate scores 1.0, one that costs twice as much 0.5. A label that is missing, or is no
positive number, counts as ``defaultCost``. Labels are read once per version of the endpoint table, not per
request.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class LabelCostParams(PluginParams, frozen=True):
    """Parameters of label-cost-scorer."""

    label_key: Annotated[str, msgspec.Meta(min_length=1)] = "example.com/cost-per-hour"
    """Label of the endpoints that holds the cost."""
    default_cost: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Cost of an endpoint whose label says none."""


class LabelCostScorer:
    """Scores by cost."""

    info: ClassVar = PluginInfo("label-cost-scorer", LabelCostParams)
    category: ClassVar = ScorerCategory.BALANCE
    bounded: ClassVar = True

    def __init__(self, name: TypedName, params: LabelCostParams, handle: Handle) -> None:
        self.name = name
        self._label = params.label_key
        self._default = params.default_cost
        self._table = handle.table
        self._version = -1
        self._costs: Floats = np.zeros(0)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """Cost of the cheapest candidate over that of each."""
        if self._version != self._table.version:
            self._read_labels()
        costs = self._costs[candidates.slots]
        scores: Floats = costs.min() / costs
        return scores

    def _read_labels(self) -> None:
        costs = np.full(self._table.capacity, self._default)
        for endpoint in self._table.all().endpoints:
            costs[endpoint.slot] = self._cost(endpoint.spec.labels.get(self._label, ""))
        self._costs = costs
        self._version = self._table.version

    def _cost(self, text: str) -> float:
        try:
            cost = float(text)
        except ValueError:
            return self._default
        return cost if math.isfinite(cost) and cost > 0 else self._default
