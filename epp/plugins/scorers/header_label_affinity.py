"""Prefer endpoints whose label has the value that a request header names.

An equal value scores 1.0, any other or none 0.0; so does everybody when the request lacks the header. Which
slots carry which value is worked out once for each version of the endpoint table.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.plugins.endpoint_facts import SlotsByLabel


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
        self._labels = SlotsByLabel(handle.table, params.label_key)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        """1.0 where the label has the header's value, else 0.0."""
        wanted = request.headers.get(self._header)
        if not wanted:
            return np.zeros(len(candidates))
        by_slot = np.zeros(self._table.capacity)
        slots = self._labels.by_value.get(wanted)
        if slots is not None:
            by_slot[slots] = 1.0
        scores: Floats = by_slot[candidates.slots]
        return scores
