"""Whatever a document says, it becomes a graph or an error that names what is wrong."""

import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.config.problems import ConfigErrors
from epp.config_schema import config_schema
from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugins import TEST_REGISTRY

NAMES = st.sampled_from(
    ["queue-scorer", "prefix-cache-scorer", "max-score-picker", "single-profile-handler", "text-source",
     "text-extractor", "many-handler", "left-producer", "openai-parser", "token-producer", "x", ""]
)  # fmt: skip
ODD = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.lists(st.none())
)
PARAMETERS = st.dictionaries(
    st.sampled_from(["minSpread", "estimate", "vllm", "maxNumOfEndpoints", "x"]), ODD, max_size=2
)


def refs(**more: Any) -> st.SearchStrategy[Any]:
    """A list of references, some of them odd."""
    entry = st.fixed_dictionaries({"pluginRef": NAMES}, optional=more)
    return st.lists(entry | ODD, max_size=3) | ODD


PLUGIN = st.fixed_dictionaries(
    {"type": NAMES}, optional={"name": NAMES | ODD, "parameters": PARAMETERS | ODD}
)
PROFILE = st.fixed_dictionaries({"name": NAMES}, optional={"plugins": refs(weight=ODD)})
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "type": NAMES | ODD,
        "name": NAMES | ODD,
        "weight": ODD,
        "parameters": PARAMETERS | ODD,
        "x": ODD,
    },
)
TREE = st.fixed_dictionaries(
    {
        "primaryProfile": st.fixed_dictionaries(
            {},
            optional={
                "filters": st.lists(ENTRY | NAMES | ODD, max_size=3) | ODD,
                "scorers": st.lists(ENTRY | NAMES | ODD, max_size=3) | ODD,
                "picker": ENTRY | NAMES | ODD,
            },
        )
        | ODD
    },
    optional={"type": NAMES | ODD, "parameters": PARAMETERS | ODD},
)
DOCUMENT = st.fixed_dictionaries(
    {"apiVersion": st.just("llm-d.ai/v1alpha1"), "kind": st.just("EndpointPickerConfig")},
    optional={
        "featureGates": st.lists(st.text(max_size=5)) | ODD,
        "plugins": st.lists(PLUGIN | ODD, max_size=5) | ODD,
        "schedulingProfiles": st.lists(PROFILE | ODD, max_size=3) | ODD,
        "dataLayer": st.fixed_dictionaries(
            {}, optional={"sources": refs(extractors=refs()), "injectDefaults": ODD, "discovery": ODD}
        )
        | ODD,
        "flowControl": st.fixed_dictionaries(
            {}, optional={"maxBytes": ODD, "defaultRequestTTL": ODD, "priorityBands": ODD}
        )
        | ODD,
        "requestHandler": st.fixed_dictionaries({}, optional={"parsers": refs()}) | ODD,
        "parser": ODD,
        "saturationDetector": ODD,
        "scheduler": st.fixed_dictionaries({"profileHandler": TREE | ODD}) | ODD,
        "extra": ODD,
    },
)


SCHEMA = jsonschema.Draft7Validator(config_schema(TEST_REGISTRY))
"""Accepts whatever loads."""


@settings(max_examples=300)
@given(DOCUMENT)
def test_a_document_becomes_a_graph_or_named_problems(document: dict[str, Any]):
    text = json.dumps(document)
    handle = Handle(EndpointTable())
    try:
        graph = load_graph(text, handle, registry=TEST_REGISTRY)
    except ConfigErrors as caught:
        problems = caught.errors
    else:
        problems = []
        assert [error.message for error in SCHEMA.iter_errors(document)] == []
        assert graph.profiles
        assert graph.profile_handler in graph.instances.values()
    assert all(problem.message for problem in problems)
    assert handle.plugins == {}
