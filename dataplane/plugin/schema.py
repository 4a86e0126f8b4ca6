"""The part of a configuration's JSON Schema that depends on which plugins there are.

Loads every plugin's module, and nothing else.
"""

from __future__ import annotations

from typing import Any

from dataplane.config.epp_sections import PluginSpec
from dataplane.config.schema import Definitions, Schema, struct_schema
from dataplane.plugin.base import PluginInfo, PluginParams, Stability
from dataplane.plugin.registry import PluginRegistry


def add_plugins(definitions: Definitions, registry: PluginRegistry) -> None:
    """Say which types a ``PluginSpec`` may have, and what the parameters of each are."""
    spec = definitions[PluginSpec.__name__]
    spec["properties"]["type"] |= {"enum": [*registry, *registry.aliases]}
    del spec["properties"]["type"]["default"]
    by_type: dict[str, list[str]] = {}
    for plugin_type in registry:
        by_type[plugin_type] = [a for a, target in registry.aliases.items() if target == plugin_type]
    cases: list[Schema] = []
    for plugin_type, aliases in by_type.items():
        info: PluginInfo = registry.resolve(plugin_type).info
        name = f"parameters.{plugin_type}"
        definitions[name] = _parameters(info, definitions)
        cases.append(
            {
                "if": {"properties": {"type": {"enum": [plugin_type, *aliases]}}, "required": ["type"]},
                "then": {"properties": {"parameters": {"$ref": f"#/definitions/{name}"}}},
            }
        )
    spec["allOf"] = cases


def _parameters(info: PluginInfo, definitions: Definitions) -> Schema:
    schema: dict[str, Any] = struct_schema(info.params, definitions)
    if info.params is PluginParams:
        schema["description"] = f"{info.type} has no parameters."
    if info.stability is Stability.ALPHA:
        schema["description"] += " Alpha: needs --allow-experimental-plugins."
    return schema
