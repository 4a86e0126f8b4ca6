"""The shipped JSON schemas of configurations are current, valid, and explain every field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

import epp.config_schema
import epp.graph.registry
import ipp.config_schema
import ipp.pipeline
import ipp.registry
from dataplane.config.document import read_document
from tests.architecture.tree import ROOT


class Shipped(NamedTuple):
    """The schema of one process."""

    command: str
    file: Path
    schema: Callable[[], dict[str, Any]]
    text: Callable[[], str]


PICKER = Shipped(
    "epp",
    ROOT / "deploy/epp-config.schema.json",
    lambda: epp.config_schema.config_schema(epp.graph.registry.REGISTRY),
    lambda: epp.config_schema.print_schema(epp.graph.registry.REGISTRY),
)
PROCESSOR = Shipped(
    "ipp",
    ROOT / "deploy/ipp-config.schema.json",
    lambda: ipp.config_schema.config_schema(ipp.registry.REGISTRY),
    lambda: ipp.config_schema.print_schema(ipp.registry.REGISTRY),
)

processes = pytest.mark.parametrize("of", [PICKER, PROCESSOR], ids=["picker", "processor"])


@processes
def test_the_shipped_schema_is_current(of: Shipped):
    command = f"pointsman {of.command} schema --external-plugins false > {of.file.relative_to(ROOT)}"
    shipped = of.file.read_text() if of.file.exists() else ""
    assert shipped == of.text(), f"write it anew: {command}"


@processes
def test_the_schema_is_one(of: Shipped):
    jsonschema.Draft7Validator.check_schema(json.loads(of.text()))


@processes
def test_every_field_has_a_text_below_it(of: Shipped):
    silent = {
        (name, field)
        for name, definition in of.schema()["definitions"].items()
        for field, schema in definition.get("properties", {}).items()
        if not schema.get("description")
    }
    assert silent == set(), "write a docstring below these fields of the struct"


def test_the_configuration_that_is_built_in_fits_its_schema():
    document = read_document(ipp.pipeline.DEFAULT_CONFIG, [])
    assert [
        error.message for error in jsonschema.Draft7Validator(PROCESSOR.schema()).iter_errors(document)
    ] == []
