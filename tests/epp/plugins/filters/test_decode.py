"""decode-filter: endpoints whose role includes decode stay."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.filters.decode import DecodeFilter
from tests.support.labelled import left_by
from tests.support.pool import make_plugin

ROLES = [
    "encode", "prefill", "decode", "encode-prefill", "prefill-decode", "encode-decode",
    "encode-prefill-decode", "both", "", "Decode", "draft", None,
]  # fmt: skip


def test_the_role_label_decides():
    pool = [{} if role is None else {"llm-d.ai/role": role} for role in ROLES]
    left = left_by(DecodeFilter, pool)
    assert {ROLES[int(name[1:])] for name in left} == {
        "decode",
        "prefill-decode",
        "encode-decode",
        "encode-prefill-decode",
        "both",
        None,
    }


def test_the_documented_role_encode_decode_serves_decode():
    assert left_by(DecodeFilter, [{"llm-d.ai/role": "encode-decode"}]) == ["e0"]


def test_a_pool_without_roles_passes_whole():
    assert left_by(DecodeFilter, [{}, {"app": "vllm"}]) == ["e0", "e1"]


def test_nobody_may_be_left():
    assert left_by(DecodeFilter, [{"llm-d.ai/role": "draft"}]) == []
    assert left_by(DecodeFilter, []) == []


def test_the_name_of_the_concept_pages_is_accepted_with_a_warning():
    graph = load_graph(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins: [{type: decode-endpoints-filter}]",
        Handle(EndpointTable()),
    )
    assert type(graph.instances["decode-endpoints-filter"]) is DecodeFilter
    assert graph.warnings == (
        "plugins[0]: plugin type 'decode-endpoints-filter' is deprecated; use 'decode-filter'",
    )


def test_there_are_no_parameters():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(DecodeFilter, None, {"label": "role"})
    assert [str(error) for error in caught.value.errors] == [
        "parameters.label: unknown field; there are none here"
    ]
