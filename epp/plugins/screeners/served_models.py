"""Keep the endpoints that serve the requested model.

What an endpoint serves is what discovery says of it (``models`` in an EndpointList), else what it says itself
(``/v1/models``, left by models-data-extractor). An endpoint of which nothing is known is kept: leaving it out
would empty a pool whose lists have not arrived yet. So is everybody for a request without a model.

Which slots serve which model is worked out once for each version of the table and of the lists, so a request
costs two look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import SERVED_MODELS
from epp.interfaces.endpoint import Candidates, Endpoint, EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

Mask = NDArray[np.bool_]


class ServedModelsScreener:
    """Leaves out endpoints that are known to serve other models only."""

    info: ClassVar[PluginInfo] = PluginInfo("served-models-screener", PluginParams, Stability.BETA)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._table: EndpointTable = handle.table
        self._version = (-1, -1)
        self._serving: dict[str, Mask] = {}
        """By model, for the models that somebody is known to serve."""
        self._unknown: Mask = np.zeros(0, dtype=np.bool_)
        """Endpoints of which nothing is known: they are kept for every model."""
        self._last: dict[str, tuple[Candidates, Candidates]] = {}

    def screen(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """Those that serve the model the request goes out with; possibly none."""
        model = request.target_model
        if not model:
            return candidates
        self._refresh()
        mask = self._serving.get(model)
        if mask is None:
            return candidates.where(self._unknown[candidates.slots])
        last = self._last.get(model)
        if last is None or last[0] is not candidates:
            last = self._last[model] = (candidates, candidates.where(mask[candidates.slots]))
        return last[1]

    def _refresh(self) -> None:
        table = self._table
        column = table.attributes.objects(SERVED_MODELS)
        version = (table.version, -1 if column is None else column.version)
        if version == self._version:
            return
        self._version, self._last = version, {}
        self._unknown = np.zeros(table.capacity, dtype=np.bool_)
        slots: dict[str, list[int]] = {}
        for endpoint in table.all().endpoints:
            models = self._models(endpoint)
            if models is None:
                self._unknown[endpoint.slot] = True
            else:
                for model in models:
                    slots.setdefault(model, []).append(endpoint.slot)
        self._serving = {}
        for model, found in slots.items():
            mask = self._serving[model] = self._unknown.copy()
            mask[found] = True

    def _models(self, endpoint: Endpoint) -> Iterable[str] | None:
        """Models the endpoint serves; None when that is not known."""
        if endpoint.spec.models:
            return endpoint.spec.models
        listed = self._table.attributes.get(endpoint.slot, SERVED_MODELS)
        return None if listed is None else [model.id for model in listed]
