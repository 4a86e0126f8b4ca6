"""encode-filter: endpoints whose role includes encode stay."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.plugins.filters.encode import EncodeFilter
from tests.support.labelled import left_by
from tests.support.pool import make_plugin

ROLES = [
    "encode", "prefill", "decode", "encode-prefill", "prefill-decode", "encode-decode",
    "encode-prefill-decode", "both", "", "Decode", "draft", None,
]  # fmt: skip


def test_the_role_label_decides():
    pool = [{} if role is None else {"llm-d.ai/role": role} for role in ROLES]
    left = left_by(EncodeFilter, pool)
    assert {ROLES[int(name[1:])] for name in left} == {
        "encode",
        "encode-prefill",
        "encode-decode",
        "encode-prefill-decode",
    }


def test_the_documented_role_encode_decode_serves_encode():
    assert left_by(EncodeFilter, [{"llm-d.ai/role": "encode-decode"}]) == ["e0"]


def test_a_pool_without_roles_has_nobody_for_encode():
    assert left_by(EncodeFilter, [{}, {"app": "vllm"}]) == []


def test_nobody_may_be_left():
    assert left_by(EncodeFilter, [{"llm-d.ai/role": "draft"}]) == []
    assert left_by(EncodeFilter, []) == []


def test_there_are_no_parameters():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(EncodeFilter, None, {"label": "role"})
    assert [str(error) for error in caught.value.errors] == [
        "parameters.label: unknown field; there are none here"
    ]
