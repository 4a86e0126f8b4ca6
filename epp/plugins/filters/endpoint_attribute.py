"""Keep the endpoints whose attribute compares with a value as wanted.

The attribute is a number that the data layer left on the endpoint, such as a custom metric of its engine or
the utilization of its GPUs. An endpoint without it is kept or left out as ``onMissing`` says; one whose last
report is too old has lost it. When nobody is left, everybody is with ``fallbackOnEmpty``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.endpoint_numbers import number_key, numbers_of

OPERATORS: Final[Mapping[str, Callable[[Floats, float], NDArray[np.bool_]]]] = {
    "LessThan": np.less,
    "LessThanOrEqual": np.less_equal,
    "GreaterThan": np.greater,
    "GreaterThanOrEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}


class Threshold(PluginParams, frozen=True):
    """What the attribute is compared with."""

    operator: Literal["LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Equal", "NotEqual"]
    """How; the attribute stands on the left."""
    value: float
    """The number on the right."""


class FilterAlgorithm(PluginParams, frozen=True):
    """How endpoints are told apart."""

    threshold: Threshold
    """The comparison: `operator` and `value`."""
    type: Literal["threshold"] = "threshold"
    """There is one kind."""


class EndpointAttributeFilterParams(PluginParams, frozen=True):
    """Parameters of endpoint-attribute-filter."""

    attribute: str
    """Name of the attribute."""
    algorithm: FilterAlgorithm
    """What is kept: `type` threshold and `threshold`."""
    producer: str | None = None
    """Instance that leaves the attribute; empty = whichever does."""
    on_missing: Literal["Pass", "Fail"] = "Pass"
    """Whether an endpoint without the attribute is kept."""
    fallback_on_empty: bool = False
    """Whether everybody is kept when nobody would be."""

    def __post_init__(self) -> None:
        number_key(self.attribute, self.producer, "attribute")


class EndpointAttributeFilter:
    """Filters by one number per endpoint."""

    info: ClassVar = PluginInfo("endpoint-attribute-filter", EndpointAttributeFilterParams, Stability.ALPHA)

    def __init__(self, name: TypedName, params: EndpointAttributeFilterParams, handle: Handle) -> None:
        self.name = name
        self._key = number_key(params.attribute, params.producer, "attribute")
        self._compare = OPERATORS[params.algorithm.threshold.operator]
        self._value = params.algorithm.threshold.value
        self._wanted = f"{params.algorithm.threshold.operator} {self._value:g}"
        self._keeps_missing = params.on_missing == "Pass"
        self._fallback = params.fallback_on_empty
        self.consumes: Sequence[DataKey[Any]] = (self._key,)

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The endpoints that compare as wanted; with ``fallbackOnEmpty`` all of them if there is none."""
        numbers = numbers_of(self._key, candidates)
        missing = np.isnan(numbers)
        keep = np.where(missing, self._keeps_missing, self._compare(numbers, self._value))
        if self._fallback and not keep.any():
            return candidates
        return candidates.where(keep)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The number that does not compare as wanted."""
        number = float(numbers_of(self._key, candidates)[candidates.slots == endpoint.slot][0])
        key = self._key.type_name
        return f"has no {key}" if math.isnan(number) else f"{key} is {number:g}, wanted {self._wanted}"
