"""``pointsman ipp schema``: the JSON Schema of a processor's configuration, for editors."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from dataplane.config.epp_sections import PluginRef, PluginSpec
from dataplane.config.ipp import (
    API_VERSION,
    KIND,
    PayloadProcessorConfig,
    ProcessingProfile,
    ProcessorEntry,
)
from dataplane.config.schema import DRAFT, Definitions, Schema, struct_schema
from dataplane.plugin.registry import PluginRegistry
from dataplane.plugin.schema import add_plugins

REQUIRED: Final[dict[type[msgspec.Struct], list[str]]] = {
    PluginRef: ["pluginRef"],
    PluginSpec: ["type"],
    ProcessingProfile: ["name", "plugins"],
    ProcessorEntry: ["pluginRef"],
}
"""Fields that the structs can do without and a valid document cannot."""


def config_schema(registry: PluginRegistry) -> Schema:
    """The schema of a whole document whose plugins are of the types of ``registry``."""
    definitions = Definitions()
    document = struct_schema(PayloadProcessorConfig, definitions)
    for kind, fields in REQUIRED.items():
        definitions[kind.__name__] |= {"required": fields, "type": "object"}
    document["required"] = ["apiVersion", "kind", "plugins", "profiles"]
    document["properties"] = {
        "apiVersion": {"const": API_VERSION, "description": "Version of the format."},
        "kind": {"const": KIND, "description": "What the document is."},
        "metadata": {"type": "object", "description": "Name and labels, for whoever keeps documents."},
        **document["properties"],
    }
    definitions[ProcessorEntry.__name__]["properties"]["weight"]["minimum"] = 0
    add_plugins(definitions, registry)
    return {"$schema": DRAFT, "title": KIND, **document, "definitions": dict(sorted(definitions.items()))}


def print_schema(registry: PluginRegistry) -> str:
    """The schema as it is written to a file."""
    return json.dumps(config_schema(registry), indent=1, ensure_ascii=False) + "\n"
