"""``pointsman epp schema``: the JSON Schema of a picker's configuration, for editors.

The sections' schema with what depends on the plugins filled in: the known types, and for each type the
schema of its parameters. Loads every plugin's module, and nothing else.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from dataplane.config.epp_checks import API_VERSION, DEPRECATED_API_VERSION, KIND
from dataplane.config.epp_sections import (
    DataSourceSpec,
    EndpointPickerConfig,
    PluginRef,
    PluginSpec,
    ProfilePlugin,
    SchedulingProfileSpec,
)
from dataplane.config.schema import DRAFT, Definitions, Schema, struct_schema
from dataplane.plugin.base import PluginInfo, PluginParams, Stability
from dataplane.plugin.registry import PluginRegistry

REQUIRED: Final[dict[type[msgspec.Struct], list[str]]] = {
    DataSourceSpec: ["pluginRef"],
    EndpointPickerConfig: ["apiVersion", "kind"],
    PluginRef: ["pluginRef"],
    PluginSpec: ["type"],
    ProfilePlugin: ["pluginRef"],
    SchedulingProfileSpec: ["name"],
}
"""Fields that the structs can do without and a valid document cannot."""


def config_schema(registry: PluginRegistry) -> Schema:
    """The schema of a whole document whose plugins are of the types of ``registry``."""
    definitions = Definitions()
    document = struct_schema(EndpointPickerConfig, definitions)
    for kind, fields in REQUIRED.items():
        section = document if kind is EndpointPickerConfig else definitions[kind.__name__]
        section["required"] = fields
        section["type"] = "object"
        for field in fields:
            section["properties"][field]["type"] = "string"  # and not null, as that of an optional field
    document["properties"]["apiVersion"] |= {"enum": [API_VERSION, DEPRECATED_API_VERSION]}
    document["properties"]["kind"] |= {"const": KIND}
    for field in (document["properties"]["apiVersion"], document["properties"]["kind"]):
        del field["default"]
    definitions[ProfilePlugin.__name__]["properties"]["weight"]["minimum"] = 0
    _add_plugins(definitions, registry)
    return {
        "$schema": DRAFT,
        "title": KIND,
        **document,
        "definitions": dict(sorted(definitions.items())),
    }


def print_schema(registry: PluginRegistry) -> str:
    """The schema as it is written to a file."""
    return json.dumps(config_schema(registry), indent=1, ensure_ascii=False) + "\n"


def _add_plugins(definitions: Definitions, registry: PluginRegistry) -> None:
    """The plugins' types, and the parameters of each."""
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
