"""Prefer endpoints whose label has the value that a request header names.

An equal value scores 1.0, any other or none 0.0; so does everybody when the request lacks the header. Which
slots carry which value is worked out once for each version of the endpoint table.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.endpoint import Candidates, Floats, Slots
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory


class HeaderLabelAffinityParams(PluginParams, frozen=True):
    """Parameters of header-label-affinity-scorer."""

    header_name: Annotated[str, msgspec.Meta(min_length=1)]
    """Request header that names the wanted value."""
    label_key: Annotated[str, msgspec.Meta(min_length=1)]
    """Label of the endpoints it is compared with."""


class HeaderLabelAffinityScorer:
    """Scores by equality of a header and a label."""

    info: ClassVar = PluginInfo(
        "header-label-affinity-scorer", HeaderLabelAffinityParams, stability=Stability.ALPHA
    )
    category: ClassVar = ScorerCategory.AFFINITY
    bounded: ClassVar = True

    def __init__(self, name: TypedName, params: HeaderLabelAffinityParams, handle: Handle) -> None:
        self.name = name
        self._table = handle.table
        self._header = params.header_name.lower()
        self._label = params.label_key
        self._version = -1
        self._slots_by_value: dict[str, Slots] = {}

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 where the label has the header's value, else 0.0."""
        wanted = request.headers.get(self._header)
        if not wanted:
            return np.zeros(len(candidates))
        if self._version != self._table.version:
            self._read_labels()
        by_slot = np.zeros(self._table.capacity)
        slots = self._slots_by_value.get(wanted)
        if slots is not None:
            by_slot[slots] = 1.0
        scores: Floats = by_slot[candidates.slots]
        return scores

    def _read_labels(self) -> None:
        slots: dict[str, list[int]] = {}
        for endpoint in self._table.all().endpoints:
            value = endpoint.spec.labels.get(self._label)
            if value is not None:
                slots.setdefault(value, []).append(endpoint.slot)
        self._slots_by_value = {value: np.array(found, dtype=np.intp) for value, found in slots.items()}
        self._version = self._table.version
