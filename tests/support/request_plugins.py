"""Plugins around scheduling, for tests of their order and of what their failures cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from dataplane.errors import BadRequestError, ResourceExhaustedError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams
from epp.interfaces.attributes import LATENCY_PREDICTION, LatencyPrediction
from epp.interfaces.endpoint import Candidates
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseHead
from epp.interfaces.scheduling import SchedulingResult
from tests.support.plugins import RIGHT, TEST_REGISTRY, Base

CALLS: DataKey[list[str]] = DataKey("Calls")
"""What has been called for a request so far, in order."""


class TellTaleParams(PluginParams, frozen=True):
    """What the plugin does at its stages."""

    fairness_id: str = ""
    denial: str = ""
    denial_error: str = ""
    header_error: bool = False
    produce_error: Literal["", "BadRequestError", "LookupError"] = ""
    response_headers: dict[str, str] = msgspec.field(default_factory=dict)
    response_error: bool = False


class TellTale(Base):
    """Notes at each stage that it was called there, then does what it was told to."""

    info: ClassVar = PluginInfo("tell-tale", TellTaleParams)
    produces: Sequence[DataKey[Any]] = (RIGHT,)

    def process_request_headers(self, request: InferenceRequest) -> None:
        self._note(request, "request headers")
        if self.params.header_error:
            raise BadRequestError("that header makes no sense")
        if self.params.fairness_id:
            request.fairness_id = self.params.fairness_id

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        self._note(request, "produce")
        if self.params.produce_error == "BadRequestError":
            raise BadRequestError("that data makes no sense")
        if self.params.produce_error:
            raise LookupError("a producer's defect")
        request.put(RIGHT, 1)

    def admit(self, request: InferenceRequest, candidates: Candidates) -> str | None:
        self._note(request, f"admit among {len(candidates)}")
        if self.params.denial_error:
            raise ResourceExhaustedError(self.params.denial_error, retry_after_s=7)
        return self.params.denial or None

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        self._note(request, "pre-request")

    def process_response_headers(
        self, request: InferenceRequest, response: ResponseHead, set_headers: dict[str, str]
    ) -> None:
        self._note(request, f"response headers {response.status} of {response.served or 'unknown'}")
        set_headers |= self.params.response_headers
        if self.params.response_error:
            raise ResourceExhaustedError("no more headers")

    def _note(self, request: InferenceRequest, stage: str) -> None:
        calls = request.get(CALLS)
        if calls is None:
            calls = []
            request.put(CALLS, calls)
        calls.append(f"{self.name.name}: {stage}")


class RightReader(Base):
    """Consumes what a provider leaves that is no data producer."""

    info: ClassVar = PluginInfo("right-reader")
    consumes: Sequence[DataKey[Any]] = (RIGHT,)


class HeaderProvider(Base):
    """Leaves RIGHT when it reads the request's headers."""

    info: ClassVar = PluginInfo("header-provider")
    produces: Sequence[DataKey[Any]] = (RIGHT,)

    def process_request_headers(self, request: InferenceRequest) -> None:
        request.put(RIGHT, 2)


class PickyParams(PluginParams, frozen=True):
    """Endpoints that are kept, by name."""

    keep: list[str] = msgspec.field(default_factory=list)


class PickyScreener(Base):
    """Keeps the endpoints it was told to."""

    info: ClassVar = PluginInfo("picky-screener", PickyParams)

    def screen(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        calls = request.get(CALLS) or []
        request.put(CALLS, [*calls, f"{self.name.name}: screen {len(candidates)}"])
        keep = [endpoint.spec.name in self.params.keep for endpoint in candidates.endpoints]
        return candidates.where(np.array(keep, dtype=np.bool_))


class Pessimist(Base):
    """Predicts that no endpoint will answer in time."""

    info: ClassVar = PluginInfo("pessimist")
    produces: Sequence[DataKey[Any]] = (LATENCY_PREDICTION,)

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        times = np.full(len(candidates), 1e6)
        late = np.zeros(len(candidates), dtype=np.bool_)
        request.put(LATENCY_PREDICTION, LatencyPrediction(candidates, times, times, -times, -times, late))


REQUEST_PLUGINS = (TellTale, RightReader, HeaderProvider, PickyScreener, Pessimist)

REQUEST_REGISTRY = TEST_REGISTRY.extended({p.info.type: f"{__name__}:{p.__name__}" for p in REQUEST_PLUGINS})
