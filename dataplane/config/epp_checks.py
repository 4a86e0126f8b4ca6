"""What is checked of an ``EndpointPickerConfig`` beyond its types, without constructing a plugin.

Required fields, repeated names, values out of range, feature gates, and sections whose machinery this build
does not have: those are refused, or warned of where leaving them out changes no decision. Nothing that a
document asks for is passed over silently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dataplane.config.epp_sections import (
    DataSourceSpec,
    EndpointPickerConfig,
    FlowControlSpec,
    PluginRef,
    PluginSpec,
    PriorityBandSpec,
    SchedulingProfileSpec,
)
from dataplane.errors import ConfigError, did_you_mean

API_VERSION: Final = "llm-d.ai/v1alpha1"
DEPRECATED_API_VERSION: Final = "inference.networking.x-k8s.io/v1alpha1"
KIND: Final = "EndpointPickerConfig"

FLOW_CONTROL_GATE: Final = "flowControl"
NON_LEADER_GATE: Final = "haPopulateNonLeaderDatastore"
FEATURE_GATES: Final[Mapping[str, bool]] = {FLOW_CONTROL_GATE: False, NON_LEADER_GATE: True}
"""Known feature gates and whether each is on by default."""

MAX_PLUGINS: Final = 1000
MAX_PROFILES: Final = 100
MAX_PROFILE_PLUGINS: Final = 1000

_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})


def check(config: EndpointPickerConfig, warnings: list[str]) -> list[ConfigError]:
    """All that is wrong; what an operator should know besides is appended to ``warnings``."""
    return [
        *_envelope(config, warnings),
        *_plugins(config.plugins),
        *_profiles(config.scheduling_profiles, warnings),
        *_references(config),
        *_replication(config, warnings),
        *_flow_control(config, warnings),
    ]


def oversized(config: EndpointPickerConfig) -> list[ConfigError]:
    """Lists too long to be looked at: building from them would hold the process up."""
    sizes = {
        "plugins": (len(config.plugins), MAX_PLUGINS),
        "schedulingProfiles": (len(config.scheduling_profiles), MAX_PROFILES),
    } | {
        f"schedulingProfiles[{i}].plugins": (len(profile.plugins), MAX_PROFILE_PLUGINS)
        for i, profile in enumerate(config.scheduling_profiles)
    }
    return [
        ConfigError(f"has {size} entries; at most {most} are allowed", path=path)
        for path, (size, most) in sizes.items()
        if size > most
    ]


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


def _profiles(profiles: Sequence[SchedulingProfileSpec], warnings: list[str]) -> Iterator[ConfigError]:
    seen: set[str] = set()
    for i, profile in enumerate(profiles):
        path = f"schedulingProfiles[{i}]"
        if not profile.name:
            yield ConfigError("the profile is missing a name", path=path)
        elif profile.name in seen:
            yield ConfigError(f"duplicate profile name '{profile.name}'", path=path)
        seen.add(profile.name)
        listed: set[str] = set()
        for j, entry in enumerate(profile.plugins):
            at = f"{path}.plugins[{j}]"
            if entry.plugin_ref and entry.plugin_ref in listed:
                warnings.append(f"{at}: '{entry.plugin_ref}' is in the profile twice, and counts twice")
            listed.add(entry.plugin_ref)
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
    seen: set[str] = set()
    for i, text in enumerate(config.feature_gates):
        name, separator, value = (part.strip() for part in text.partition("="))
        state = value.lower() if separator else "true"
        path = f"featureGates[{i}]"
        if name not in gates:
            hint = did_you_mean(name, gates) or f"; known are {', '.join(gates)}"
            problems.append(ConfigError(f"feature gate '{name}' is unknown or unregistered{hint}", path=path))
        elif state not in _TRUE and state not in _FALSE:
            problems.append(ConfigError(f"'{value}' is neither true nor false", path=path))
        elif name in seen:
            problems.append(ConfigError(f"feature gate '{name}' is set twice; remove one", path=path))
        else:
            seen.add(name)
            gates[name] = state in _TRUE
    return gates


def _replication(config: EndpointPickerConfig, warnings: list[str]) -> Iterator[ConfigError]:
    """State shared between replicas: there is none to share, so a wish for it is refused."""
    layer = config.data_layer
    if layer.peer_discovery is not None and layer.peer_discovery.plugin_ref:
        yield ConfigError(
            "this build has no peer discovery plugin; remove it", path="dataLayer.peerDiscovery"
        )
    if layer.cross_replica_syncer_plugin_ref:
        yield ConfigError(
            "this build shares no state between replicas; remove it",
            path="dataLayer.crossReplicaSyncerPluginRef",
        )
    interval = layer.cross_replica_sync_interval
    if interval is not None and interval <= 0:
        yield ConfigError("must be more than 0s", path="dataLayer.crossReplicaSyncInterval")
    elif interval is not None:
        warnings.append(
            "dataLayer.crossReplicaSyncInterval has no effect: no state is shared between replicas"
        )


def _flow_control(config: EndpointPickerConfig, warnings: list[str]) -> list[ConfigError]:
    """Gates and the section's own values; the gate is refused, because nothing here would act on it."""
    problems: list[ConfigError] = []
    gates = _gates(config, problems)
    if not gates[NON_LEADER_GATE]:
        warnings.append(
            f"featureGates: {NON_LEADER_GATE}=false has no effect: every replica knows its endpoints, "
            "because none is a leader"
        )
    if gates[FLOW_CONTROL_GATE]:
        message = "this build has no flow control yet; remove the gate to run without queueing"
        problems.append(ConfigError(message, path="featureGates"))
    flow = config.flow_control
    if flow is not None:
        if not gates[FLOW_CONTROL_GATE]:
            ignored = ", ".join(f"flowControl.{name}" for name in _queueing_fields(flow))
            if ignored:
                warnings.append(f"ignored because the feature gate flowControl is off: {ignored}")
        problems.extend(_flow_values(flow, warnings))
        problems.extend(_detector(flow.saturation_detector, config.plugins))
    return problems


def _queueing_fields(flow: FlowControlSpec) -> list[str]:
    """Fields in use that only queueing acts on; a saturation detector is there without it."""
    default = FlowControlSpec()
    return [
        field.encode_name
        for field in msgspec.structs.fields(FlowControlSpec)
        if field.name != "saturation_detector" and getattr(flow, field.name) != getattr(default, field.name)
    ]


def _flow_values(flow: FlowControlSpec, warnings: list[str]) -> Iterator[ConfigError]:
    for name, ttl in (
        ("defaultRequestTTL", flow.default_request_ttl),
        ("noEndpointRequestTTL", flow.no_endpoint_request_ttl),
    ):
        if ttl is not None and ttl < 0:
            yield ConfigError("must not be negative; 0s means never", path=f"flowControl.{name}")
    templates: dict[str, PriorityBandSpec | None] = {
        "defaultPriorityBand": flow.default_priority_band,
        "defaultNegativePriorityBand": flow.default_negative_priority_band,
    }
    for name, template in templates.items():
        if template is not None and template.priority is not None:
            warnings.append(f"flowControl.{name}.priority has no effect: the band is a template")
    seen: set[int] = set()
    for i, band in enumerate(flow.priority_bands):
        path = f"flowControl.priorityBands[{i}].priority"
        if band.priority is None:
            yield ConfigError("is required", path=path)
        elif band.priority in seen:
            yield ConfigError(f"duplicate priority level {band.priority}", path=path)
        else:
            seen.add(band.priority)


def _detector(detector: PluginRef | None, plugins: Sequence[PluginSpec]) -> Iterator[ConfigError]:
    if detector is None:
        return
    path = "flowControl.saturationDetector"
    names = [spec.name for spec in plugins]
    if not detector.plugin_ref:
        yield ConfigError("is missing a 'pluginRef'", path=path)
    elif detector.plugin_ref not in names:
        hint = did_you_mean(detector.plugin_ref, names)
        yield ConfigError(
            f"saturation detector references undefined plugin '{detector.plugin_ref}'{hint}",
            path=f"{path}.pluginRef",
        )
