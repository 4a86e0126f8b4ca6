"""Keep the endpoints whose value of one label is in a list.

Deprecated: label-selector-filter says the same with an ``In`` expression. ``allowsNoLabel`` keeps endpoints
without the label as well, which no single selector expression says.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.endpoint_facts import SpecFilter, shown_label


class ByLabelParams(PluginParams, frozen=True):
    """Parameters of by-label."""

    label: str
    """Label key."""
    valid_values: list[str] = msgspec.field(default_factory=list)
    """Values that are kept."""
    allows_no_label: bool = False
    """Whether endpoints without the label are kept."""

    def __post_init__(self) -> None:
        if not self.label:
            raise ConfigError("must not be empty", path="label")
        if not self.valid_values and not self.allows_no_label:
            raise ConfigError(
                "nobody can pass: list at least one value, or set allowsNoLabel", path="validValues"
            )


class ByLabelFilter:
    """Filters by one label."""

    info: ClassVar = PluginInfo("by-label", ByLabelParams)

    def __init__(self, name: TypedName, params: ByLabelParams, handle: Handle) -> None:
        self.name = name
        label = params.label
        accepted = frozenset([*params.valid_values, *([None] if params.allows_no_label else [])])
        self._label = label
        self._filter = SpecFilter(lambda spec: spec.labels.get(label) in accepted)
        self.warnings = ["the type by-label is deprecated; use label-selector-filter"]

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The endpoints with a listed value, and those without the label if allowed."""
        return self._filter.kept(candidates)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The value that is not listed."""
        return shown_label(endpoint.spec, self._label)
