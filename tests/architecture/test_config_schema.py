"""The shipped JSON schema of the picker's configuration is current, valid, and explains every field."""

from __future__ import annotations

import json

import jsonschema

from epp.config_schema import config_schema, print_schema
from epp.graph.registry import REGISTRY
from tests.architecture.tree import ROOT

FILE = ROOT / "deploy/epp-config.schema.json"


def test_the_shipped_schema_is_current():
    command = f"pointsman epp schema --external-plugins false > {FILE.relative_to(ROOT)}"
    shipped = FILE.read_text() if FILE.exists() else ""
    assert shipped == print_schema(REGISTRY), f"write it anew: {command}"


def test_the_schema_is_one():
    jsonschema.Draft7Validator.check_schema(json.loads(print_schema(REGISTRY)))


def test_every_field_has_a_text_below_it():
    silent = {
        (name, field)
        for name, definition in config_schema(REGISTRY)["definitions"].items()
        for field, schema in definition.get("properties", {}).items()
        if not schema.get("description")
    }
    assert silent == set(), "write a docstring below these fields of the struct"
