"""Deny requests of negative priority that no endpoint is predicted to answer in time.

A request says what it needs in its latency objectives (``x-llm-d-slo-ttft-ms``, ``x-llm-d-slo-tpot-ms``). It
is denied when there are predictions and none of them holds, unless some endpoint is idle or cold: predictions
say little about those. An endpoint whose metrics are not fresh is neither, since silence is no idleness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from dataplane.headers import SLO_TPOT_MS, SLO_TTFT_MS
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import ENGINE_METRICS, LATENCY_PREDICTION, produced_by
from epp.interfaces.endpoint import Candidates
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

COLD_KV_USAGE: Final = 0.02
"""KV-cache utilisation below which an endpoint has served next to nothing yet."""


class LatencySloParams(PluginParams, frozen=True):
    """Parameters of latency-slo-admitter."""

    latency_prediction_info_producer_name: str = ""
    """Producer of the predictions; empty = predicted-latency-producer."""


class LatencySloAdmitter:
    """Sheds requests of negative priority whose objectives cannot be met."""

    info: ClassVar = PluginInfo("latency-slo-admitter", LatencySloParams)

    def __init__(self, name: TypedName, params: LatencySloParams, handle: Handle) -> None:
        self.name = name
        self._prediction = produced_by(LATENCY_PREDICTION, params.latency_prediction_info_producer_name)
        self.consumes: Sequence[DataKey[Any]] = (self._prediction, ENGINE_METRICS)

    def admit(self, request: InferenceRequest, candidates: Candidates) -> str | None:
        """Deny what is sheddable, has an objective, and is predicted to miss it everywhere."""
        if request.priority >= 0 or not _has_objective(request):
            return None
        prediction = request.get(self._prediction)
        if prediction is None or np.isnan(prediction.ttft_ms).all() or prediction.valid.any():
            return None
        table, slots = candidates.table, candidates.slots
        idle = table.running[slots] + table.unseen[slots] == 0
        cold = table.kv_usage[slots] < COLD_KV_USAGE
        if (table.fresh[slots] & (idle | cold)).any():
            return None
        return (
            f"no endpoint is predicted to meet its latency objectives, and requests of priority "
            f"{request.priority} are shed"
        )


def _has_objective(request: InferenceRequest) -> bool:
    """Whether a header names a latency above 0."""
    for name in (SLO_TTFT_MS, SLO_TPOT_MS):
        text = request.headers.control(name)
        try:
            if text and float(text) > 0 and math.isfinite(float(text)):
                return True
        except ValueError:
            continue
    return False
