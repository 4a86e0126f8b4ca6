"""Keep the endpoints whose labels a selector matches.

The selector is Kubernetes': ``matchLabels`` and ``matchExpressions``, joined by "and". One without
requirements keeps everybody, which is said once when the configuration loads. No match leaves nobody.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.endpoint_facts import SpecFilter, shown_label
from epp.plugins.selectors import LabelSelector


class LabelSelectorParams(LabelSelector, frozen=True):
    """Parameters of label-selector-filter: the selector itself."""


class LabelSelectorFilter:
    """Filters by a label selector."""

    info: ClassVar = PluginInfo("label-selector-filter", LabelSelectorParams)

    def __init__(self, name: TypedName, params: LabelSelectorParams, handle: Handle) -> None:
        self.name = name
        self._selector = params
        matches = params.test()
        self._filter = SpecFilter(lambda spec: matches(spec.labels))
        self.warnings = ["the selector is empty and keeps every endpoint"] if params.is_empty else []

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The matching endpoints."""
        return self._filter.kept(candidates)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The label that does not meet a requirement."""
        return shown_label(endpoint.spec, self._selector.unmet(endpoint.spec.labels))
