"""The picker's built-in plugins: type string -> where its class is.

A table of strings: reading it imports no plugin, so a console or a test may look at it freely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BUILTIN: Final[Mapping[str, str]] = {
    # parsers
    "openai-parser": "epp.plugins.parsers.openai:OpenAIParser",
    "anthropic-parser": "epp.plugins.parsers.anthropic:AnthropicParser",
    "vllmhttp-parser": "epp.plugins.parsers.vllm_http:VllmHttpParser",
    "sglanghttp-parser": "epp.plugins.parsers.sglang_http:SglangHttpParser",
    "vllmgrpc-parser": "epp.plugins.parsers.vllm_grpc:VllmGrpcParser",
    "vertexai-parser": "epp.plugins.parsers.vertex_ai:VertexAiParser",
    "passthrough-parser": "epp.plugins.parsers.passthrough:PassthroughParser",
    # data producers
    "token-producer": "epp.plugins.producers.token:TokenProducer",
    "approx-prefix-cache-producer": "epp.plugins.producers.approximate_prefix:ApproximatePrefixProducer",
    "mm-embeddings-cache-producer": "epp.plugins.producers.media_embeddings:MediaEmbeddingsProducer",
    "multicluster-approx-prefix-cache-producer": (
        "epp.plugins.producers.multicluster_approximate_prefix:MulticlusterApproximatePrefixProducer"
    ),
    "inflight-load-producer": "epp.plugins.producers.inflight_load:InflightLoadProducer",
    "p2p-source-producer": "epp.plugins.producers.p2p_source:P2pSourceProducer",
    "session-id-producer": "epp.plugins.producers.session_id:SessionIdProducer",
    "agent-identity": "epp.plugins.producers.agent_identity:AgentIdentity",
    # screeners
    "disaggregatedset-rollout-screener": "epp.plugins.screeners.disaggregated_set_rollout:RolloutScreener",
    "served-models-screener": "epp.plugins.screeners.served_models:ServedModelsScreener",
    # admitters
    "latency-slo-admitter": "epp.plugins.admitters.latency_slo:LatencySloAdmitter",
    "probabilistic-admitter": "epp.plugins.admitters.probabilistic:ProbabilisticAdmitter",
    # saturation detectors
    "utilization-detector": "epp.plugins.detectors.utilization:UtilizationDetector",
    "concurrency-detector": "epp.plugins.detectors.concurrency:ConcurrencyDetector",
    # filters
    "session-affinity-filter": "epp.plugins.filters.session_affinity:SessionAffinityFilter",
    "multicluster-session-affinity-filter": (
        "epp.plugins.filters.multicluster_session_affinity:MulticlusterSessionAffinityFilter"
    ),
    "label-selector-filter": "epp.plugins.filters.label_selector:LabelSelectorFilter",
    "by-label": "epp.plugins.filters.by_label:ByLabelFilter",
    "decode-filter": "epp.plugins.filters.decode:DecodeFilter",
    "prefill-filter": "epp.plugins.filters.prefill:PrefillFilter",
    "encode-filter": "epp.plugins.filters.encode:EncodeFilter",
    "header-based-testing-filter": "epp.plugins.filters.header_based_testing:HeaderBasedTestingFilter",
    "utilization-filter": "epp.plugins.filters.utilization:UtilizationFilter",
    "prefix-cache-affinity-filter": "epp.plugins.filters.prefix_cache_affinity:PrefixCacheAffinityFilter",
    "topology-affinity-filter": "epp.plugins.filters.topology_affinity:TopologyAffinityFilter",
    "endpoint-attribute-filter": "epp.plugins.filters.endpoint_attribute:EndpointAttributeFilter",
    "context-length-aware": "epp.plugins.filters.context_length:ContextLengthAware",
    # scorers
    "queue-scorer": "epp.plugins.scorers.queue_depth:QueueDepthScorer",
    "kv-cache-utilization-scorer": "epp.plugins.scorers.kv_cache_utilization:KvCacheUtilizationScorer",
    "prefix-cache-scorer": "epp.plugins.scorers.prefix_cache:PrefixCacheScorer",
    "multicluster-prefix-cache-scorer": (
        "epp.plugins.scorers.multicluster_prefix_cache:MulticlusterPrefixCacheScorer"
    ),
    "running-requests-size-scorer": "epp.plugins.scorers.running_requests:RunningRequestsScorer",
    "active-request-scorer": "epp.plugins.scorers.active_requests:ActiveRequestsScorer",
    "load-aware-scorer": "epp.plugins.scorers.load_aware:LoadAwareScorer",
    "session-affinity-scorer": "epp.plugins.scorers.session_affinity:SessionAffinityScorer",
    "lora-affinity-scorer": "epp.plugins.scorers.lora_affinity:LoraAffinityScorer",
    "token-load-scorer": "epp.plugins.scorers.token_load:TokenLoadScorer",
    "mm-embeddings-cache-scorer": "epp.plugins.scorers.media_embeddings:MediaEmbeddingsScorer",
    "no-hit-lru-scorer": "epp.plugins.scorers.no_hit_lru:NoHitLruScorer",
    "header-label-affinity-scorer": "epp.plugins.scorers.header_label_affinity:HeaderLabelAffinityScorer",
    "topology-affinity-scorer": "epp.plugins.scorers.topology_affinity:TopologyAffinityScorer",
    "multicluster-queue-scorer": "epp.plugins.scorers.multicluster_queue:MulticlusterQueueScorer",
    "multicluster-kv-cache-utilization-scorer": (
        "epp.plugins.scorers.multicluster_kv_cache_utilization:MulticlusterKvCacheUtilizationScorer"
    ),
    "endpoint-attribute-scorer": "epp.plugins.scorers.endpoint_attribute:EndpointAttributeScorer",
    # pickers
    "max-score-picker": "epp.plugins.pickers.max_score:MaxScorePicker",
    "random-picker": "epp.plugins.pickers.random:RandomPicker",
    "weighted-random-picker": "epp.plugins.pickers.weighted_random:WeightedRandomPicker",
    # profile handlers
    "single-profile-handler": "epp.plugins.profile_handlers.single:SingleProfileHandler",
    "disagg-profile-handler": "epp.plugins.profile_handlers.disaggregated:DisaggregatedProfileHandler",
    "pd-profile-handler": "epp.plugins.profile_handlers.prefill_decode:PrefillDecodeProfileHandler",
    "data-parallel-profile-handler": "epp.plugins.profile_handlers.data_parallel:DataParallelProfileHandler",
    "header-profile-handler": "epp.plugins.profile_handlers.header:HeaderProfileHandler",
    # header handlers
    "disagg-headers-handler": "epp.plugins.header_handlers.disagg_headers:DisaggHeadersHandler",
    "prefill-header-handler": "epp.plugins.header_handlers.prefill_header:PrefillHeaderHandler",
    # verifiers of conformance tests
    "destination-endpoint-served-verifier": (
        "epp.plugins.verifiers.destination_endpoint_served:DestinationEndpointServedVerifier"
    ),
    # deciders of disaggregation
    "always-disagg-pd-decider": "epp.plugins.deciders.always_prefill:AlwaysPrefillDecider",
    "always-disagg-multimodal-decider": "epp.plugins.deciders.always_multimodal:AlwaysMultimodalDecider",
    "prefix-based-pd-decider": "epp.plugins.deciders.prefix_based:PrefixBasedDecider",
    # reporters
    "request-attribute-reporter": "epp.plugins.reporters.request_attribute:RequestAttributeReporter",
    # data layer
    "metrics-data-source": "epp.plugins.sources.model_server_metrics:ModelServerMetricsSource",
    "core-metrics-extractor": "epp.plugins.extractors.core_metrics:CoreMetricsExtractor",
    "models-data-source": "epp.plugins.sources.models:ModelsSource",
    "models-data-extractor": "epp.plugins.extractors.models:ModelsExtractor",
    "dcgm-data-source": "epp.plugins.sources.dcgm:DcgmSource",
    "dcgm-extractor": "epp.plugins.extractors.dcgm:DcgmExtractor",
    "multicluster-metrics-data-source": (
        "epp.plugins.sources.multicluster_metrics:MulticlusterMetricsSource"
    ),
    "multicluster-metrics-extractor": (
        "epp.plugins.extractors.multicluster_metrics:MulticlusterMetricsExtractor"
    ),
    "endpoint-notification-source": "epp.plugins.sources.endpoint_notification:EndpointNotificationSource",
    "topology-extractor": "epp.plugins.extractors.topology:TopologyExtractor",
    "multicluster-file-discovery": "epp.plugins.discovery.multicluster_file:MulticlusterFileDiscovery",
    "file-discovery": "epp.plugins.discovery.file:FileDiscovery",
}

ALIASES: Final[Mapping[str, str]] = {
    "tokenizer": "token-producer",
    "kv-cache-scorer": "kv-cache-utilization-scorer",
    "queue-depth-scorer": "queue-scorer",
    "by-label-selector": "label-selector-filter",
    "decode-endpoints-filter": "decode-filter",
    "prefill-endpoints-filter": "prefill-filter",
}
"""Deprecated type strings and what replaces them."""
