"""The configurations on the documentation's pages load as they stand, and the schema accepts them."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml

from dataplane.config.problems import ConfigErrors
from epp.config_schema import config_schema
from epp.graph import load_graph
from epp.graph.registry import REGISTRY
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.architecture.tree import ROOT

DOCS = ROOT / "docs"
HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
SECTIONS = {"plugins", "schedulingProfiles", "dataLayer", "requestHandler", "flowControl", "scheduler"}
SCHEMA = jsonschema.Draft7Validator(config_schema(REGISTRY))


def examples() -> dict[str, dict[str, Any]]:
    """Page and number -> document, of every YAML block that holds sections of a configuration."""
    found = {}
    for page in sorted([*DOCS.glob("plugins/*.md"), DOCS / "reference/config.md"]):
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for i, block in enumerate(blocks):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and document.keys() & SECTIONS:
                found[f"{page.stem}-{i}"] = HEAD | document
    return found


EXAMPLES = examples()

OF_PACKAGES = {"latency-slo-admitter-0": "LatencyPredictionInfo"}
"""Examples that read data which only a plugin of an installed package produces."""


def test_an_example_that_needs_a_package_lacks_its_data_alone():
    for name, data in OF_PACKAGES.items():
        with pytest.raises(ConfigErrors) as caught:
            load_graph(yaml.safe_dump(EXAMPLES[name]), Handle(EndpointTable()), allow_experimental=True)
        (problem,) = caught.value.errors
        assert data in problem.message


COMPLETE = {name: document for name, document in EXAMPLES.items() if name not in OF_PACKAGES}


@pytest.mark.parametrize("document", COMPLETE.values(), ids=COMPLETE)
def test_an_example_loads(document: dict[str, Any]):
    graph = load_graph(yaml.safe_dump(document), Handle(EndpointTable()), allow_experimental=True)
    assert graph.profiles
    assert [error.message for error in SCHEMA.iter_errors(document)] == []


def test_the_reference_has_examples():
    assert {"config-0", "config-1"} & EXAMPLES.keys()
