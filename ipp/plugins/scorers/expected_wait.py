"""``expected-wait-scorer``: prefers the model that would be done with the request soonest.

What a model has to generate, this answer included, divided by the tokens a second that its answers come to. A
request that does not say how long its answer may be counts as long as the model's answers are on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelLoads, ServedModel
from ipp.plugins.output_limits import output_limit
from ipp.plugins.ttft_scoring import shortest_first
from ipp.speeds import ModelSpeeds


class ExpectedWaitScorer:
    """A model of which nothing is known is tried by one request at a time."""

    info: ClassVar = PluginInfo("expected-wait-scorer", PluginParams)
    needs: ClassVar = (ModelLoads, ModelSpeeds)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._loads = handle.data.table(ModelLoads)
        self._speeds = handle.data.table(ModelSpeeds)
        self._speeds.wants_usage = True

    def score_models(self, request: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for the shortest wait, 0 for the longest, in proportion between."""
        limit = output_limit(request)
        waits = [self._wait(model.name, limit) for model in candidates]
        known = [wait for wait in waits if wait is not None]
        if not known:
            return shortest_first([float(self._loads.requests(model.name)) for model in candidates])
        longest = max(known)
        return shortest_first(
            [
                longest * 2 * self._loads.requests(model.name) if wait is None else wait
                for model, wait in zip(candidates, waits, strict=True)
            ]
        )

    def _wait(self, model: str, limit: int) -> float | None:
        """Seconds until the model would have answered; None when it is not known how fast it is."""
        speed = self._speeds.by_model.get(model)
        rate = 0.0 if speed is None else speed.tokens_per_second
        if speed is None or rate <= 0:
            return None
        usual = speed.tokens_per_answer
        load = self._loads.by_model.get(model)
        ahead = 0.0 if load is None else load.tokens + load.unbounded * usual
        return (ahead + (limit or usual)) / rate
