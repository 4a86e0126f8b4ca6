"""``model-selector``: chooses the model of a request among those that are listed, and writes it in the body.

The filters, scorers and the picker that stand in the same list of a profile do the choosing. All other bytes
of the body stay as they are.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import ClassVar

from dataplane.errors import ResourceExhaustedError
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelList, ServedModel
from ipp.interfaces.plugins import RequestProcessor
from ipp.interfaces.selection import (
    AskedFor,
    ModelFilter,
    ModelPicker,
    Scored,
    ScoreTrace,
    Selected,
    WeightedScorer,
)

log = logging.getLogger(__name__)


class NoModelError(ResourceExhaustedError):
    """No listed model may serve the request."""

    error_code = "no_model_candidates"
    dropped_reason = "rejected-no-models"


class ModelSelector:
    """Takes part in as many profiles as list it."""

    info: ClassVar = PluginInfo("model-selector", PluginParams)
    needs: ClassVar = (ModelList,)

    def __init__(self, name: TypedName, _: PluginParams, handle: Handle) -> None:
        self.name = name
        self._models = handle.data.table(ModelList)
        self._trace = handle.data.table(ScoreTrace)

    def with_helpers(
        self, filters: Sequence[ModelFilter], scorers: Sequence[WeightedScorer], picker: ModelPicker
    ) -> RequestProcessor:
        """The selection of one profile."""
        return Selection(self.name, self._models, self._trace, filters, scorers, picker)


class Selection:
    """A selector with the helpers of its profile."""

    needs_request_body: ClassVar[bool] = True
    names_models: ClassVar[bool] = True

    def __init__(
        self,
        name: TypedName,
        models: ModelList,
        trace: ScoreTrace,
        filters: Sequence[ModelFilter],
        scorers: Sequence[WeightedScorer],
        picker: ModelPicker,
    ) -> None:
        self.name = name
        self._models = models
        self._trace = trace
        self._filters = tuple(filters)
        self._scorers = tuple(scorers)
        self._picker = picker
        self._out_of_range: set[str] = set()

    def process_request(self, request: RequestMessage) -> None:
        """Choose. ``NoModelError`` when nobody is left, saying after which filter."""
        if not request.is_json:
            return
        asked = request.model
        candidates: Sequence[ServedModel] = self._models.models
        if not candidates:
            raise NoModelError("no model is listed that could serve the request", param="model")
        for each in self._filters:
            candidates = each.filter_models(request, candidates)
            if not candidates:
                wanted = f"'{asked[:100]}'" if asked else "the request"
                raise NoModelError(
                    f"no listed model fits {wanted}: {each.name.name} leaves none", param="model"
                )
        totals = [0.0] * len(candidates)
        if self._trace.is_wanted:
            self._score_openly(request, candidates, totals)
        elif len(candidates) > 1:
            for scorer, weight in self._scorers:
                for at, score in enumerate(scorer.score_models(request, candidates)):
                    totals[at] += weight * self._bounded(scorer.name, score)
        chosen = candidates[self._picker.pick_model(request, totals)].name
        request.state[Selected] = chosen
        if chosen != asked:
            request.state[AskedFor] = asked
            request.set_member("model", chosen)

    def _score_openly(
        self, request: RequestMessage, candidates: Sequence[ServedModel], totals: list[float]
    ) -> None:
        """Score, a single candidate too, and leave in the request's state how it came about."""
        scored: list[tuple[str, float, Sequence[float]]] = []
        for scorer, weight in self._scorers:
            scores = [self._bounded(scorer.name, each) for each in scorer.score_models(request, candidates)]
            for at, score in enumerate(scores):
                totals[at] += weight * score
            scored.append((scorer.name.name, weight, scores))
        request.state[Scored] = Scored([model.name for model in candidates], scored, tuple(totals))

    def _bounded(self, name: TypedName, score: float) -> float:
        """The score if it is one from 0 to 1, else the nearest; told once for each scorer."""
        if 0.0 <= score <= 1.0:
            return score
        if name.name not in self._out_of_range:
            self._out_of_range.add(name.name)
            log.warning("scorer %s gave a score of %s, which is not from 0 to 1", name, score)
        return 0.0 if math.isnan(score) else min(1.0, max(0.0, score))
