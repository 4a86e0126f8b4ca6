"""``base-model-to-header``: adapters, aliases and patterns find their base model."""

from __future__ import annotations

import pytest

from dataplane.config.problems import ConfigErrors
from tests.support.processors import Rig, headers_of, one_profile

MAPPING = {"baseModel": "qwen", "adapters": ["sql-lora-sheddable", "foo", "1"]}
FIELD = {
    "type": "body-field-to-header",
    "parameters": {"fieldName": "model", "headerName": "X-Gateway-Model-Name"},
}
CONFIG = one_profile([FIELD, {"type": "base-model-to-header", "parameters": {"mappings": [MAPPING]}}])
MODEL, BASE = "x-gateway-model-name", "x-gateway-base-model-name"


def test_an_adapter_names_its_model_and_its_base_model() -> None:
    answer = Rig(CONFIG).ask({"model": "foo", "prompt": "hello"})
    assert headers_of(answer) == {MODEL: "foo", BASE: "qwen"}
    assert answer.body is None
    assert answer.clear_route_cache is True


def test_a_model_nobody_has_gets_an_empty_base_model() -> None:
    assert headers_of(Rig(CONFIG).ask({"model": "nobody"})) == {MODEL: "nobody", BASE: ""}


def test_aliases_and_patterns_find_the_base_model_and_the_longest_pattern_wins() -> None:
    mappings = [
        {"baseModel": "llama", "aliases": ["fast"], "patterns": ["llama-*"]},
        {"baseModel": "llama-big", "patterns": ["llama-3-*", "*"]},
    ]
    rig = Rig(one_profile([{"type": "base-model-to-header", "parameters": {"mappings": mappings}}]))
    found = {
        model: headers_of(rig.ask({"model": model}))[BASE]
        for model in ("llama", "fast", "llama-2", "llama-3-8b", "llama-big", "other")
    }
    assert found == {
        "llama": "llama",
        "fast": "llama",
        "llama-2": "llama",
        "llama-3-8b": "llama-big",
        "llama-big": "llama-big",
        "other": "llama-big",
    }


def test_a_name_that_two_base_models_claim_is_a_mistake_with_both_places() -> None:
    mappings = [{"baseModel": "a", "adapters": ["x"]}, {"baseModel": "b", "adapters": ["x"]}]
    with pytest.raises(ConfigErrors) as caught:
        Rig(one_profile([{"type": "base-model-to-header", "parameters": {"mappings": mappings}}]))
    assert [str(error) for error in caught.value.errors] == [
        (
            "plugins[0].parameters.mappings[1].adapters[0]: 'x' is also in mappings[0].adapters[0]; "
            "a name has one base model"
        )
    ]
