"""What of a server's list of models is kept."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.interfaces.attributes import SERVED_MODELS, ServedModel
from epp.interfaces.data_layer import Extractor, UnreadablePageError
from epp.plugins.extractors.models import MAX_BYTES, MAX_MODELS, MAX_TEXT, ModelsExtractor
from tests.support.pool import make_plugin, make_table


def read(body: bytes) -> tuple[ServedModel, ...]:
    """What is left of one answer."""
    plugin = make_plugin(ModelsExtractor, name="lists")
    attributes = plugin.reader(make_table(1).all().endpoint(0))(body).attributes
    models: tuple[ServedModel, ...] = attributes[SERVED_MODELS.by("lists")]
    return models


def listed(*entries: Any) -> bytes:
    return json.dumps({"object": "list", "data": entries}).encode()


def test_each_field_is_kept_and_others_are_passed_over():
    body = listed(
        {"id": "base", "object": "model", "created": 1700000000, "owned_by": "vllm", "max_model_len": 4096},
        {"id": "adapter", "parent": "base", "created": None, "permission": [{"id": "x"}]},
    )
    assert read(body) == (
        ServedModel("base", "model", 1700000000, "vllm"),
        ServedModel("adapter", parent="base"),
    )


def test_entries_without_a_usable_id_are_left_out():
    assert read(listed({"object": "model"}, {"id": ""}, {"id": "x" * (MAX_TEXT + 1)}, {"id": "m"})) == (
        ServedModel("m"),
    )


def test_sizes_are_bounded():
    many = read(listed(*({"id": str(i)} for i in range(MAX_MODELS + 5))))
    assert (len(many), many[-1].id) == (MAX_MODELS, str(MAX_MODELS - 1))
    assert read(listed({"id": "m", "owned_by": "x" * 1000}))[0].owned_by == "x" * MAX_TEXT
    with pytest.raises(UnreadablePageError, match=f"the list of models is longer than {MAX_BYTES} bytes"):
        read(b" " * (MAX_BYTES + 1))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"data": {}}', b'{"data": [{"id": 7}]}', b'{"data": ["m"]}', b"{" * 900]
)
def test_what_is_no_list_of_models_is_refused(body: bytes):
    with pytest.raises(UnreadablePageError, match="it is no list of models"):
        read(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_refused(body: bytes):
    with contextlib.suppress(UnreadablePageError):
        read(body)


def test_an_answer_seen_before_is_not_read_again():
    reader = make_plugin(ModelsExtractor).reader(make_table(1).all().endpoint(0))
    first = reader(listed({"id": "m"}))
    assert reader(listed({"id": "m"})) is first
    assert reader(listed({"id": "n"})) is not first


def test_it_is_an_extractor_of_lists_of_models():
    plugin = make_plugin(ModelsExtractor)
    assert isinstance(plugin, Extractor)
    assert (plugin.expects, list(plugin.produces)) == (
        "models-list",
        [SERVED_MODELS.by("models-data-extractor")],
    )
