"""``cost-scorer``: prefers models that cost less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel


class CostScorer:
    """A model's price is that of a million tokens in and a million out; without a price it is free."""

    info: ClassVar = PluginInfo("cost-scorer", PluginParams)

    def __init__(self, name: TypedName, _: PluginParams, __: Handle) -> None:
        self.name = name

    def score_models(self, _: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 less the share in the sum of all prices; 1 for all when all are free, 0.5 for a single one."""
        if len(candidates) == 1:
            return (0.5,)
        prices = [model.input_price + model.output_price for model in candidates]
        total = sum(prices)
        return [1.0 - price / total for price in prices] if total > 0 else [1.0] * len(prices)
