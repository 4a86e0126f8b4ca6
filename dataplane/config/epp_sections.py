"""The sections of ``EndpointPickerConfig`` as strict structs: which fields there are, and what each means.

The docstring of a field is its description in the JSON schema. What a value may be beyond its type, and how
values must fit together, is checked by ``dataplane.config.epp``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dataplane.config.decode import Duration, Quantity
from dataplane.config.resilience import ResilienceSpec


class Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of the document."""


class PluginSpec(Section, frozen=True):
    """One plugin instance."""

    name: str = ""
    """How other sections refer to it; the type when empty. Unique."""
    type: str = ""
    """Type string of the catalogue."""
    parameters: dict[str, Any] | None = None
    """Settings of the plugin; its page lists them."""


class PluginRef(Section, frozen=True):
    """A reference to a plugin instance by name."""

    plugin_ref: str = ""
    """Name of a configured plugin."""


class ProfilePlugin(Section, frozen=True):
    """A plugin's part in a profile."""

    plugin_ref: str = ""
    """Name of a configured filter, scorer or picker."""
    weight: float | None = None
    """Factor of a scorer's scores, finite and not negative; 1 when absent."""


class SchedulingProfileSpec(Section, frozen=True):
    """A named chain of filters, scorers and one picker."""

    name: str = ""
    """Unique."""
    plugins: list[ProfilePlugin] = msgspec.field(default_factory=list)
    """Filters run in this order, then scorers, then the picker."""


class DataSourceSpec(Section, frozen=True):
    """A data source and what reads its payload."""

    plugin_ref: str = ""
    """Name of a configured data source."""
    extractors: list[PluginRef] = msgspec.field(default_factory=list)
    """Extractors fed by it."""


class DataLayerSpec(Section, frozen=True):
    """Where endpoints and their metrics come from."""

    inject_defaults: bool | None = None
    """Whether metrics-data-source with core-metrics-extractor is added unless one is listed; true."""
    sources: list[DataSourceSpec] = msgspec.field(default_factory=list)
    """What is polled from every endpoint."""
    discovery: PluginRef | None = None
    """Endpoint discovery that replaces Kubernetes."""
    peer_discovery: PluginRef | None = None
    """Discovery of other replicas of this picker."""
    cross_replica_syncer_plugin_ref: str = ""
    """Plugin that shares state between replicas."""
    cross_replica_sync_interval: Duration | None = None
    """How often it does; 200ms."""


class PriorityBandSpec(Section, frozen=True):
    """Limits and policies of the requests of one priority."""

    priority: int | None = None
    """The band's priority; higher is more important. Not used in a template."""
    max_bytes: Quantity | None = None
    """Queued request bytes; 1 000 000 000 when absent or 0."""
    max_requests: Quantity | None = None
    """Queued requests; 5000 when absent or 0."""
    fairness_policy_ref: str = ""
    """Name of a fairness policy plugin."""
    ordering_policy_ref: str = ""
    """Name of an ordering policy plugin."""


class FlowControlSpec(Section, frozen=True):
    """Queueing of requests when the pool is saturated."""

    max_bytes: Quantity | None = None
    """Request bytes queued in all bands together; 0 or absent = no limit."""
    max_requests: Quantity | None = None
    """Requests queued in all bands together; 0 or absent = no limit."""
    default_request_ttl: Duration | None = msgspec.field(default=None, name="defaultRequestTTL")
    """How long a request may wait; 60s when absent, 0s = for ever."""
    no_endpoint_request_ttl: Duration | None = msgspec.field(default=None, name="noEndpointRequestTTL")
    """The same while the pool is empty; as ``defaultRequestTTL`` when absent."""
    default_priority_band: PriorityBandSpec | None = None
    """Template of bands that are not listed."""
    default_negative_priority_band: PriorityBandSpec | None = None
    """Template of bands below 0 that are not listed."""
    priority_bands: list[PriorityBandSpec] = msgspec.field(default_factory=list)
    """Bands with limits of their own."""
    usage_limit_policy_plugin_ref: str = ""
    """Name of a usage limit policy plugin."""
    saturation_detector: PluginRef | None = None
    """What says how full the pool is."""
    enable_eviction: bool = False
    """Whether running requests of negative priority may be ended in favour of waiting ones."""


class RequestHandlerSpec(Section, frozen=True):
    """How request bodies are understood."""

    parsers: list[PluginRef] = msgspec.field(default_factory=list)
    """Parsers in order of preference; when empty openai-, anthropic-, vllmhttp- and passthrough-parser."""


class NestedProfile(Section, frozen=True):
    """A profile with its plugins written in place. An entry is a type or a mapping with ``type`` or ``name``;
    its other fields are the plugin's parameters."""

    filters: list[Any] = msgspec.field(default_factory=list)
    """Filters in the order in which they run."""
    scorers: list[Any] = msgspec.field(default_factory=list)
    """Scorers, each with a ``weight``; 1 when absent."""
    picker: Any = None
    """The picker."""


class NestedHandler(Section, frozen=True):
    """The profile handler with its profile."""

    primary_profile: NestedProfile
    """The profile."""
    type: str = ""
    """Type of the profile handler; single-profile-handler when absent."""
    parameters: dict[str, Any] | None = None
    """Its settings."""


class NestedScheduler(Section, frozen=True):
    """Plugins and their profile in one tree, as llm-d's concept pages show it."""

    profile_handler: NestedHandler
    """Handler and profile."""


class EndpointPickerConfig(Section, frozen=True):
    """The whole document."""

    api_version: str = ""
    """``llm-d.ai/v1alpha1``."""
    kind: str = ""
    """``EndpointPickerConfig``."""
    feature_gates: list[str] = msgspec.field(default_factory=list)
    """``name`` or ``name=true|false``."""
    plugins: list[PluginSpec] = msgspec.field(default_factory=list)
    """Every plugin instance the other sections refer to."""
    scheduling_profiles: list[SchedulingProfileSpec] = msgspec.field(default_factory=list)
    """One profile of every configured filter, scorer and picker when empty."""
    data_layer: DataLayerSpec = msgspec.field(default_factory=DataLayerSpec)
    """Discovery and metrics."""
    flow_control: FlowControlSpec | None = None
    """Used with the feature gate ``flowControl`` only."""
    request_handler: RequestHandlerSpec = msgspec.field(default_factory=RequestHandlerSpec)
    """Parsers."""
    resilience: ResilienceSpec = ResilienceSpec()
    """Endpoints that fail or come back; an extension of the field's format."""
    saturation_detector: PluginRef | None = None
    """Deprecated: ``flowControl.saturationDetector``."""
    parser: PluginRef | None = None
    """Deprecated: one entry of ``requestHandler.parsers``."""
    scheduler: NestedScheduler | None = None
    """Form of llm-d's concept pages, accepted with a warning: use ``plugins`` and ``schedulingProfiles``."""
