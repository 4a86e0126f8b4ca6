"""``pointsman epp validate``: whether files would be accepted, and what a configuration comes to.

Builds the plugin graph over an empty endpoint table exactly as a start or a reload does, but opens nothing:
no port, no connection, and no endpoints file. All mistakes of a file are told at once. Files of objects and
endpoints files are checked as well (``epp.validate_files``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TextIO

import yaml

from dataplane.config.encode import encode_struct
from dataplane.files import read_regular_file
from dataplane.plugin.judging import INVALID, MAX_CONFIG_BYTES, VALID, judge_each, shown_plugin
from dataplane.plugin.registry import PluginRegistry
from epp.graph import PluginGraph, load_graph
from epp.graph.registry import REGISTRY
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.validate_files import Verdict, judge, judge_objects


def validate(
    files: Sequence[str],
    out: TextIO,
    *,
    show_defaults: bool = False,
    allow_experimental: bool = False,
    registry: PluginRegistry = REGISTRY,
) -> int:
    """Check each file and say what was found. Returns 0 when all are accepted, else 1."""

    def judged(name: str) -> tuple[int, str]:
        if os.path.isdir(name):
            return _told(name, judge_objects(name))
        text = read_regular_file(name, MAX_CONFIG_BYTES, path="")
        verdict = judge(name, text)
        if verdict is not None:
            return _told(name, verdict)
        graph = load_graph(
            text, Handle(EndpointTable()), allow_experimental=allow_experimental, registry=registry
        )
        said = "".join(f"{name}: warning: {warning}\n" for warning in graph.warnings) + f"{name}: ok\n"
        if show_defaults:
            said += yaml.safe_dump(effective(graph), sort_keys=False)
        return VALID, said

    return judge_each(files, out, judged)


def _told(name: str, verdict: Verdict) -> tuple[int, str]:
    """The outcome of a file that is no configuration, and what is said of it."""
    said = [f"{name}: error: {error}\n" for error in verdict.errors]
    said += [f"{name}: warning: {warning}\n" for warning in verdict.warnings]
    if verdict.errors:
        return INVALID, "".join(said)
    return VALID, "".join(said) + f"{name}: ok ({verdict.holds})\n"


def effective(graph: PluginGraph) -> dict[str, Any]:
    """What a graph consists of once every default is filled in, in the order in which it runs."""
    configured = {spec.name: spec for spec in graph.config.plugins}
    return {
        "plugins": [
            shown_plugin(name, plugin, configured.get(name)) for name, plugin in graph.instances.items()
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


def _name(plugin: Any) -> str:
    return str(plugin.name.name)


def _names(plugins: Sequence[Any]) -> list[str]:
    return [_name(plugin) for plugin in plugins]
