"""``pointsman epp schema``: the JSON Schema of a picker's configuration, for editors.

The sections' schema with what depends on the plugins filled in: the known types, and for each type the
schema of its parameters. Loads every plugin's module, and nothing else.
"""

from __future__ import annotations

import json
from typing import Final

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
from dataplane.plugin.registry import PluginRegistry
from dataplane.plugin.schema import add_plugins

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
    add_plugins(definitions, registry)
    return {
        "$schema": DRAFT,
        "title": KIND,
        **document,
        "definitions": dict(sorted(definitions.items())),
    }


def print_schema(registry: PluginRegistry) -> str:
    """The schema as it is written to a file."""
    return json.dumps(config_schema(registry), indent=1, ensure_ascii=False) + "\n"
