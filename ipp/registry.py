"""Which plugin types a payload processor knows: the built-in ones, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dataplane.plugin.entry_points import Installed, with_installed
from dataplane.plugin.registry import PluginRegistry

BUILTIN: Final[Mapping[str, str]] = {
    # processors
    "body-field-to-header": "ipp.plugins.processors.body_field_to_header:BodyFieldToHeader",
    "base-model-to-header": "ipp.plugins.processors.base_model_to_header:BaseModelToHeader",
    "model-name-to-header": "ipp.plugins.processors.model_name_to_header:ModelNameToHeader",
    "scoring-debug-headers": "ipp.plugins.processors.scoring_debug_headers:ScoringDebugHeaders",
    "token-counter": "ipp.plugins.processors.token_counter:TokenCounter",
    "guardrails": "ipp.plugins.processors.guardrails:Guardrails",
    # selection of models
    "model-selector": "ipp.plugins.selectors.model:ModelSelector",
    "model-group-name-filter": "ipp.plugins.filters.model_group_name:ModelGroupNameFilter",
    "by-field-filter": "ipp.plugins.filters.by_field:ByFieldFilter",
    "model-name-filter": "ipp.plugins.filters.model_name:ModelNameFilter",
    "pool-load-filter": "ipp.plugins.filters.pool_load:PoolLoadFilter",
    "cost-scorer": "ipp.plugins.scorers.cost:CostScorer",
    "inflight-requests-scorer": "ipp.plugins.scorers.inflight_requests:InflightRequestsScorer",
    "load-aware-ttft-scorer": "ipp.plugins.scorers.load_aware_ttft:LoadAwareTtftScorer",
    "avg-ttft-scorer": "ipp.plugins.scorers.avg_ttft:AvgTtftScorer",
    "queue-ttft-scorer": "ipp.plugins.scorers.queue_ttft:QueueTtftScorer",
    "ttft-aware-scorer": "ipp.plugins.scorers.ttft_aware:TtftAwareScorer",
    "expected-wait-scorer": "ipp.plugins.scorers.expected_wait:ExpectedWaitScorer",
    "costguard": "ipp.plugins.scorers.costguard:Costguard",
    "pool-load-scorer": "ipp.plugins.scorers.pool_load:PoolLoadScorer",
    "session-affinity": "ipp.plugins.scorers.session_affinity:SessionAffinity",
    "max-score-picker": "ipp.plugins.model_pickers.max_score:MaxScorePicker",
    "random-picker": "ipp.plugins.model_pickers.random:RandomPicker",
    "weighted-random-picker": "ipp.plugins.model_pickers.weighted_random:WeightedRandomPicker",
    # data layer
    "model-config-datasource": "ipp.plugins.datasources.model_config:ModelConfigDatasource",
    "request-metadata-extractor": "ipp.plugins.extractors.request_metadata:RequestMetadataExtractor",
    "model-cost-extractor": "ipp.plugins.extractors.model_cost:ModelCostExtractor",
    "inference-token-extractor": "ipp.plugins.extractors.inference_token:InferenceTokenExtractor",
    "ttft-percentile-extractor": "ipp.plugins.extractors.ttft_percentile:TtftPercentileExtractor",
    "router-metrics-collector": "ipp.plugins.collectors.router_metrics:RouterMetricsCollector",
    # profile pickers
    "single-profile-picker": "ipp.plugins.pickers.single:SingleProfilePicker",
    "header-profile-picker": "ipp.plugins.pickers.header:HeaderProfilePicker",
    "tenant-profile-picker": "ipp.plugins.pickers.tenant:TenantProfilePicker",
    "model-profile-picker": "ipp.plugins.pickers.model:ModelProfilePicker",
}

REGISTRY: Final = PluginRegistry(BUILTIN)
"""The built-in plugins."""

GROUP: Final = "pointsman.ipp.plugins"
"""Entry-point group in which a package lists its plugins: type string = ``module:Class``."""

FLAG: Final = "--external-plugins=false"
"""How to run without them."""


def plugin_registry(*, external: bool) -> Installed:
    """The registry to load configurations with. ``ConfigError`` naming every package that is broken."""
    return with_installed(REGISTRY, GROUP, FLAG) if external else Installed(REGISTRY, {})
