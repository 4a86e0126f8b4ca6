"""``pointsman epp validate``: whether files would be accepted, and what a configuration comes to.

Builds the plugin graph over an empty endpoint table exactly as a start or a reload does, but opens nothing:
no port, no connection, and no endpoints file. All mistakes of a file are told at once. Files of objects and
endpoints files are checked as well (``epp.validate_files``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, TextIO

import yaml

from dataplane.config.encode import encode_struct
from dataplane.config.epp import PluginSpec
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.files import read_regular_file
from dataplane.plugin.params import decode_params
from dataplane.plugin.registry import PluginRegistry
from epp.graph import PluginGraph, load_graph
from epp.graph.registry import REGISTRY
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.validate_files import Verdict, judge, judge_objects

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
VALID: Final = 0
INVALID: Final = 1


def validate(
    files: Sequence[str],
    out: TextIO,
    *,
    show_defaults: bool = False,
    allow_experimental: bool = False,
    registry: PluginRegistry = REGISTRY,
) -> int:
    """Check each file and say what was found. Returns 0 when all are accepted, else 1."""
    outcome = VALID
    for name in files:
        try:
            if os.path.isdir(name):
                outcome |= _tell(name, judge_objects(name), out)
                continue
            text = read_regular_file(name, MAX_CONFIG_BYTES, path="")
            verdict = judge(name, text)
            if verdict is not None:
                outcome |= _tell(name, verdict, out)
                continue
            graph = load_graph(
                text, Handle(EndpointTable()), allow_experimental=allow_experimental, registry=registry
            )
        except ConfigErrors as errors:
            outcome = INVALID
            out.writelines(f"{name}: error: {error}\n" for error in errors.errors)
            continue
        except ConfigError as error:
            outcome = INVALID
            out.write(f"{name}: error: {error}\n")
            continue
        out.writelines(f"{name}: warning: {warning}\n" for warning in graph.warnings)
        out.write(f"{name}: ok\n")
        if show_defaults:
            out.write(yaml.safe_dump(effective(graph), sort_keys=False))
    return outcome


def _tell(name: str, verdict: Verdict, out: TextIO) -> int:
    """Say what was found in a file that is no configuration. Returns ``VALID`` or ``INVALID``."""
    out.writelines(f"{name}: error: {error}\n" for error in verdict.errors)
    out.writelines(f"{name}: warning: {warning}\n" for warning in verdict.warnings)
    if verdict.errors:
        return INVALID
    out.write(f"{name}: ok ({verdict.holds})\n")
    return VALID


def effective(graph: PluginGraph) -> dict[str, Any]:
    """What a graph consists of once every default is filled in, in the order in which it runs."""
    configured = {spec.name: spec for spec in graph.config.plugins}
    return {
        "plugins": [
            {"name": name, "type": plugin.name.type}
            | _parameters(plugin, configured.get(name))
            | ({} if name in configured else {"createdByDefault": True})
            for name, plugin in graph.instances.items()
        ],
        "parsers": _names(graph.parsers.parsers),
        "requestHeaderProcessors": _names(graph.request_header_processors),
        "screeners": _names(graph.screeners),
        "dataProducers": _names(graph.producers),
        "saturationDetector": _name(graph.saturation_detector),
        "admitters": _names(graph.admitters),
        "profileHandler": _name(graph.profile_handler),
        "schedulingProfiles": [
            {
                "name": profile.name,
                "filters": [name for name, _ in profile.filters],
                "scorers": [{"name": name, "weight": weight} for name, _, weight in profile.scorers],
                "picker": _name(profile.picker),
            }
            for profile in graph.profiles.values()
        ],
        "dataSources": [
            {"name": _name(source), "extractors": _names(extractors)} for source, extractors in graph.sources
        ],
        "preRequests": _names(graph.pre_requests),
        "discovery": None if graph.discovery is None else _name(graph.discovery),
        "resilience": encode_struct(graph.config.resilience),
    }


def _parameters(plugin: Any, spec: PluginSpec | None) -> dict[str, Any]:
    """The parameters of an instance with their defaults; those that are absent by default are left out."""
    params = decode_params(spec.parameters if spec is not None else None, plugin.info, "", [])
    values = encode_struct(params) if params is not None else {}
    return {"parameters": values} if values else {}


def _name(plugin: Any) -> str:
    return str(plugin.name.name)


def _names(plugins: Sequence[Any]) -> list[str]:
    return [_name(plugin) for plugin in plugins]
