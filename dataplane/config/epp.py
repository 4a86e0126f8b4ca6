"""``EndpointPickerConfig``: what an operator configures of one Endpoint Picker.

The format is llm-d's, so its files load unchanged. Every field has a default; what is required in a context
(a plugin's type, a profile's name) is checked here together with everything else that can be said without
constructing a plugin. Reading collects all problems; ``load_epp_config`` raises them as one error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dataplane.config.decode import Duration, Quantity, decode_struct
from dataplane.config.document import read_document
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError, did_you_mean

API_VERSION: Final = "llm-d.ai/v1alpha1"
DEPRECATED_API_VERSION: Final = "inference.networking.x-k8s.io/v1alpha1"
KIND: Final = "EndpointPickerConfig"

FLOW_CONTROL_GATE: Final = "flowControl"
FEATURE_GATES: Final[Mapping[str, bool]] = {FLOW_CONTROL_GATE: False, "haPopulateNonLeaderDatastore": True}
"""Known feature gates and whether each is on by default."""

_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of the document."""


class PluginSpec(_Section, frozen=True):
    """One plugin instance."""

    name: str = ""
    """How other sections refer to it; the type when empty. Unique."""
    type: str = ""
    """Type string of the catalogue."""
    parameters: dict[str, Any] | None = None
    """Settings of the plugin; its page lists them."""


class PluginRef(_Section, frozen=True):
    """A reference to a plugin instance by name."""

    plugin_ref: str = ""
    """Name of a configured plugin."""


class ProfilePlugin(_Section, frozen=True):
    """A plugin's part in a profile."""

    plugin_ref: str = ""
    """Name of a configured filter, scorer or picker."""
    weight: float | None = None
    """Factor of a scorer's scores, finite and not negative; 1 when absent."""


class SchedulingProfileSpec(_Section, frozen=True):
    """A named chain of filters, scorers and one picker."""

    name: str = ""
    """Unique."""
    plugins: list[ProfilePlugin] = msgspec.field(default_factory=list)
    """Filters run in this order, then scorers, then the picker."""


class DataSourceSpec(_Section, frozen=True):
    """A data source and what reads its payload."""

    plugin_ref: str = ""
    """Name of a configured data source."""
    extractors: list[PluginRef] = msgspec.field(default_factory=list)
    """Extractors fed by it."""


class DataLayerSpec(_Section, frozen=True):
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


class PriorityBandSpec(_Section, frozen=True):
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


class FlowControlSpec(_Section, frozen=True):
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


class RequestHandlerSpec(_Section, frozen=True):
    """How request bodies are understood."""

    parsers: list[PluginRef] = msgspec.field(default_factory=list)
    """Parsers in order of preference; when empty openai-, anthropic-, vllmhttp- and passthrough-parser."""


class EndpointPickerConfig(_Section, frozen=True):
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
    saturation_detector: PluginRef | None = None
    """Deprecated: ``flowControl.saturationDetector``."""
    parser: PluginRef | None = None
    """Deprecated: one entry of ``requestHandler.parsers``."""


class ParsedConfig(NamedTuple):
    """A document as far as it could be read."""

    config: EndpointPickerConfig
    problems: list[ConfigError]
    warnings: list[str]
    readable: bool = True
    """False when nothing of the document could be used."""


def default_config() -> EndpointPickerConfig:
    """What applies when no document is given: queue, KV-cache and prefix scorers with weights 2, 2 and 3."""
    weights = {"queue-scorer": 2.0, "kv-cache-utilization-scorer": 2.0, "prefix-cache-scorer": 3.0}
    source, extractor = "metrics-data-source", "core-metrics-extractor"
    return EndpointPickerConfig(
        api_version=API_VERSION,
        kind=KIND,
        plugins=[PluginSpec(name=t, type=t) for t in (*weights, source, extractor)],
        scheduling_profiles=[
            SchedulingProfileSpec(
                name="default", plugins=[ProfilePlugin(plugin_ref=t, weight=w) for t, w in weights.items()]
            )
        ],
        data_layer=DataLayerSpec(
            sources=[DataSourceSpec(plugin_ref=source, extractors=[PluginRef(plugin_ref=extractor)])]
        ),
    )


def load_epp_config(text: str | bytes) -> tuple[EndpointPickerConfig, list[str]]:
    """The configuration of a YAML or JSON text, and warnings. ``ConfigErrors`` with all that is wrong."""
    config, problems, warnings, _ = parse_epp_config(text)
    raise_any(problems)
    return config, warnings


def parse_epp_config(text: str | bytes) -> ParsedConfig:
    """As much of a text as can be understood, its problems and warnings; empty text = the default config."""
    problems: list[ConfigError] = []
    warnings: list[str] = []
    raw = read_document(text, problems)
    if raw is None:
        return ParsedConfig(default_config(), problems, warnings, not problems)
    config = decode_struct(raw, EndpointPickerConfig, "", problems) or EndpointPickerConfig()
    if not isinstance(raw, dict):
        return ParsedConfig(config, problems, warnings, False)
    config = _move_deprecated(config, warnings)
    config = msgspec.structs.replace(config, plugins=[_named(spec) for spec in config.plugins])
    misread = {problem.path for problem in problems}
    found = [
        *_envelope(config, warnings),
        *_plugins(config.plugins),
        *_profiles(config.scheduling_profiles),
        *_references(config),
        *_flow_control(config, warnings),
    ]
    problems.extend(problem for problem in found if problem.path not in misread)
    return ParsedConfig(config, problems, warnings)


def _named(spec: PluginSpec) -> PluginSpec:
    return spec if spec.name else msgspec.structs.replace(spec, name=spec.type)


def _move_deprecated(config: EndpointPickerConfig, warnings: list[str]) -> EndpointPickerConfig:
    """The same configuration with deprecated sections in their new places; the new place wins."""
    if config.saturation_detector is not None:
        warnings.append("saturationDetector is deprecated; use flowControl.saturationDetector")
        flow = config.flow_control or FlowControlSpec()
        if flow.saturation_detector is None:
            flow = msgspec.structs.replace(flow, saturation_detector=config.saturation_detector)
        config = msgspec.structs.replace(config, flow_control=flow, saturation_detector=None)
    if config.parser is not None:
        warnings.append("parser is deprecated; use requestHandler.parsers")
        handler = config.request_handler
        if not handler.parsers:
            handler = RequestHandlerSpec(parsers=[config.parser])
        config = msgspec.structs.replace(config, request_handler=handler, parser=None)
    return config


def _envelope(config: EndpointPickerConfig, warnings: list[str]) -> Iterator[ConfigError]:
    if config.api_version == DEPRECATED_API_VERSION:
        warnings.append(f"apiVersion {DEPRECATED_API_VERSION} is deprecated; use {API_VERSION}")
    elif config.api_version != API_VERSION:
        given = f"is {config.api_version!r}" if config.api_version else "is missing"
        yield ConfigError(f"{given}; write {API_VERSION}", path="apiVersion")
    if config.kind != KIND:
        given = f"is {config.kind!r}" if config.kind else "is missing"
        yield ConfigError(f"{given}; write {KIND}", path="kind")


def _plugins(plugins: Sequence[PluginSpec]) -> Iterator[ConfigError]:
    seen: set[str] = set()
    for i, spec in enumerate(plugins):
        path = f"plugins[{i}]"
        if not spec.type:
            yield ConfigError(f"plugin '{spec.name}' is missing a type", path=path)
        elif spec.name in seen:
            yield ConfigError(f"duplicate plugin name '{spec.name}'; give one of them a `name`", path=path)
        seen.add(spec.name)


def _profiles(profiles: Sequence[SchedulingProfileSpec]) -> Iterator[ConfigError]:
    seen: set[str] = set()
    for i, profile in enumerate(profiles):
        path = f"schedulingProfiles[{i}]"
        if not profile.name:
            yield ConfigError("the profile is missing a name", path=path)
        elif profile.name in seen:
            yield ConfigError(f"duplicate profile name '{profile.name}'", path=path)
        seen.add(profile.name)
        for j, entry in enumerate(profile.plugins):
            at = f"{path}.plugins[{j}]"
            if not entry.plugin_ref:
                yield ConfigError("the entry is missing a 'pluginRef'", path=at)
            if entry.weight is not None and not (math.isfinite(entry.weight) and entry.weight >= 0):
                message = f"must be a finite number of at least 0, is {entry.weight}"
                yield ConfigError(message, path=f"{at}.weight")


def _references(config: EndpointPickerConfig) -> Iterator[ConfigError]:
    """References without a name; whether a named plugin exists is seen when the plugins are built."""
    layer = config.data_layer
    named: dict[str, PluginRef | DataSourceSpec | None] = {
        "dataLayer.discovery": layer.discovery,
        "dataLayer.peerDiscovery": layer.peer_discovery,
    }
    for i, source in enumerate(layer.sources):
        named[f"dataLayer.sources[{i}]"] = source
        for j, extractor in enumerate(source.extractors):
            named[f"dataLayer.sources[{i}].extractors[{j}]"] = extractor
    for i, parser in enumerate(config.request_handler.parsers):
        named[f"requestHandler.parsers[{i}]"] = parser
    for path, reference in named.items():
        if reference is not None and not reference.plugin_ref:
            yield ConfigError("is missing a 'pluginRef'", path=path)


def _gates(config: EndpointPickerConfig, problems: list[ConfigError]) -> dict[str, bool]:
    """Every feature gate and whether it is on."""
    gates = dict(FEATURE_GATES)
    for i, text in enumerate(config.feature_gates):
        name, separator, value = (part.strip() for part in text.partition("="))
        state = value.lower() if separator else "true"
        path = f"featureGates[{i}]"
        if name not in gates:
            hint = did_you_mean(name, gates) or f"; known are {', '.join(gates)}"
            problems.append(ConfigError(f"feature gate '{name}' is unknown or unregistered{hint}", path=path))
        elif state not in _TRUE and state not in _FALSE:
            problems.append(ConfigError(f"'{value}' is neither true nor false", path=path))
        else:
            gates[name] = state in _TRUE
    return gates


def _flow_control(config: EndpointPickerConfig, warnings: list[str]) -> list[ConfigError]:
    """The section's own values; with the gate on it is refused, because nothing here would act on it."""
    problems: list[ConfigError] = []
    if _gates(config, problems)[FLOW_CONTROL_GATE]:
        message = "this build has no flow control yet; remove the gate to run without queueing"
        problems.append(ConfigError(message, path="featureGates"))
    elif config.flow_control is not None:
        warnings.append("flowControl is ignored because the feature gate flowControl is off")
    if config.flow_control is not None:
        problems.extend(_flow_values(config))
    return problems


def _flow_values(config: EndpointPickerConfig) -> Iterator[ConfigError]:
    flow = config.flow_control or FlowControlSpec()
    for name, ttl in (
        ("defaultRequestTTL", flow.default_request_ttl),
        ("noEndpointRequestTTL", flow.no_endpoint_request_ttl),
    ):
        if ttl is not None and ttl < 0:
            yield ConfigError("must not be negative; 0s means never", path=f"flowControl.{name}")
    seen: set[int] = set()
    for i, band in enumerate(flow.priority_bands):
        path = f"flowControl.priorityBands[{i}].priority"
        if band.priority is None:
            yield ConfigError("is required", path=path)
        elif band.priority in seen:
            yield ConfigError(f"duplicate priority level {band.priority}", path=path)
        else:
            seen.add(band.priority)
    detector = flow.saturation_detector
    if detector is not None:
        path = "flowControl.saturationDetector"
        if not detector.plugin_ref:
            yield ConfigError("is missing a 'pluginRef'", path=path)
        elif detector.plugin_ref not in {spec.name for spec in config.plugins}:
            message = f"saturation detector references undefined plugin '{detector.plugin_ref}'"
            yield ConfigError(message, path=f"{path}.pluginRef")
