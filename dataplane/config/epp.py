"""``EndpointPickerConfig``: what an operator configures of one Endpoint Picker.

The format is llm-d's, so its files load unchanged. A text becomes structs (``epp_sections``), older and
nested forms are made the usual one (``epp_nested``), and then all is checked that can be said without
constructing a plugin (``epp_checks``). Reading collects all problems; ``load_epp_config`` raises them as one
error.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dataplane.config.decode import decode_struct
from dataplane.config.document import read_document
from dataplane.config.epp_checks import API_VERSION, KIND, check, oversized
from dataplane.config.epp_nested import Origins, unnest
from dataplane.config.epp_sections import (
    DataLayerSpec,
    DataSourceSpec,
    EndpointPickerConfig,
    FlowControlSpec,
    PluginRef,
    PluginSpec,
    PriorityBandSpec,
    ProfilePlugin,
    RequestHandlerSpec,
    SchedulingProfileSpec,
)
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError

__all__ = [
    "DataLayerSpec",
    "DataSourceSpec",
    "EndpointPickerConfig",
    "FlowControlSpec",
    "ParsedConfig",
    "PluginRef",
    "PluginSpec",
    "PriorityBandSpec",
    "ProfilePlugin",
    "RequestHandlerSpec",
    "SchedulingProfileSpec",
    "default_config",
    "load_epp_config",
    "parse_epp_config",
]


class ParsedConfig(NamedTuple):
    """A document as far as it could be read."""

    config: EndpointPickerConfig
    problems: list[ConfigError]
    warnings: list[str]
    readable: bool = True
    """False when nothing of the document could be used."""
    origins: Origins = Origins()
    """Where in the document the translated parts of the configuration are."""


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
    parsed = parse_epp_config(text)
    raise_any(parsed.problems)
    return parsed.config, parsed.warnings


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
    misread = {problem.path for problem in problems}
    config, origins = unnest(config, problems, warnings)
    if too_long := oversized(config):
        return ParsedConfig(config, [*problems, *map(origins.of_error, too_long)], warnings, False)
    config = _move_deprecated(config, origins, warnings)
    config = msgspec.structs.replace(config, plugins=[_named(spec) for spec in config.plugins])
    found = [origins.of_error(problem) for problem in check(config, warnings)]
    problems.extend(problem for problem in found if problem.path not in misread)
    return ParsedConfig(config, problems, warnings, origins=origins)


def _named(spec: PluginSpec) -> PluginSpec:
    return spec if spec.name else msgspec.structs.replace(spec, name=spec.type)


def _move_deprecated(
    config: EndpointPickerConfig, origins: Origins, warnings: list[str]
) -> EndpointPickerConfig:
    """The same configuration with deprecated sections in their new places; the new place wins."""
    if config.saturation_detector is not None:
        flow = config.flow_control or FlowControlSpec()
        warnings.append(
            _deprecated("saturationDetector", "flowControl.saturationDetector", flow.saturation_detector)
        )
        if flow.saturation_detector is None:
            flow = msgspec.structs.replace(flow, saturation_detector=config.saturation_detector)
            origins["flowControl.saturationDetector"] = "saturationDetector"
        config = msgspec.structs.replace(config, flow_control=flow, saturation_detector=None)
    if config.parser is not None:
        handler = config.request_handler
        warnings.append(_deprecated("parser", "requestHandler.parsers", handler.parsers))
        if not handler.parsers:
            handler = RequestHandlerSpec(parsers=[config.parser])
            origins["requestHandler.parsers[0]"] = "parser"
        config = msgspec.structs.replace(config, request_handler=handler, parser=None)
    return config


def _deprecated(old: str, new: str, there: object) -> str:
    """The warning of a section in its old place, which counts for nothing when the new one is ``there``."""
    if there:
        return f"{old} is deprecated and ignored; use {new}, which is there"
    return f"{old} is deprecated; use {new}"
