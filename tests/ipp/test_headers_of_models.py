"""The two plugins that name model and base model in headers, as in the cases of the field."""

from __future__ import annotations

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import BadRequestError
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


def test_a_request_without_a_model_gets_no_header_and_is_counted() -> None:
    rig = Rig(CONFIG)
    assert headers_of(rig.ask({"prompt": "hello"})) == {}
    assert rig.counted("ipp_body_field_not_found_total", field="model") == 2
    assert rig.counted("ipp_success_total") == 1


def test_an_empty_model_is_skipped_and_has_no_base_model() -> None:
    rig = Rig(CONFIG)
    assert headers_of(rig.ask({"model": ""})) == {BASE: ""}
    assert rig.counted("ipp_body_field_empty_total", field="model") == 1


def test_a_number_is_its_digits() -> None:
    assert headers_of(Rig(CONFIG).ask({"model": 1})) == {MODEL: "1", BASE: "qwen"}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"42", "42"),
        (b"0.7", "0.7"),
        (b"1e3", "1e3"),
        (b"true", "true"),
        (b'{"a": [1]}', '{"a": [1]}'),
        (b'"d\\u00e9j\\u00e0"', "d\u00e9j\u00e0"),
    ],
)
def test_a_field_of_any_type_becomes_text_as_it_was_written(raw: bytes, text: str) -> None:
    assert headers_of(Rig(CONFIG).ask(b'{"model": %s}' % raw))[MODEL] == text


def test_a_model_nobody_has_gets_an_empty_base_model() -> None:
    assert headers_of(Rig(CONFIG).ask({"model": "nobody"})) == {MODEL: "nobody", BASE: ""}


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"{]}", b'{"model": }', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    rig = Rig(CONFIG)
    with pytest.raises(BadRequestError) as caught:
        rig.ask(body)
    assert caught.value.status == 400
    assert caught.value.message.startswith("inference error: BadRequest - failed to parse request body: ")
    assert rig.counted("pointsman_ipp_requests_rejected_total", code="BadRequest") == 1
    assert rig.counted("ipp_success_total") == 0


def test_an_encoded_body_is_refused_since_nobody_can_look_into_it() -> None:
    with pytest.raises(BadRequestError, match="it is encoded as gzip; send it plain"):
        Rig(CONFIG).ask(b"{}", ("content-encoding", "gzip"))


def test_an_upload_passes_without_headers() -> None:
    answer = Rig(CONFIG).ask(b"--x\r\n", ("content-type", "multipart/form-data; boundary=x"))
    assert headers_of(answer) == {}
    assert answer.body is None


def test_a_request_without_a_body_passes_untouched() -> None:
    rig = Rig(CONFIG)
    answer = rig.ask(b"")
    assert (list(answer.set_headers), list(answer.remove_headers)) == ([], [])
    assert rig.counted("ipp_success_total") == 0


@pytest.mark.parametrize("body", [b"", b'{"prompt": "x"}'])
def test_what_a_client_says_of_the_route_itself_is_taken_away(body: bytes) -> None:
    answer = Rig(CONFIG).ask(body, ("X-Gateway-Model-Name", "mine"), ("X-Gateway-Base-Model-Name", "mine"))
    assert sorted(answer.remove_headers) == [BASE, MODEL]
    assert answer.clear_route_cache is True


def test_a_header_of_the_client_gives_way_to_the_one_that_is_set() -> None:
    answer = Rig(CONFIG).ask({"model": "foo"}, ("x-gateway-model-name", "mine"))
    assert headers_of(answer)[MODEL] == "foo"
    assert list(answer.remove_headers) == []


@pytest.mark.parametrize("value", ["a\nb", "a\u0000", "x" * 5000])
def test_a_field_that_can_be_no_header_is_refused(value: str) -> None:
    with pytest.raises(BadRequestError, match="a field that becomes a header"):
        Rig(CONFIG).ask({"model": value})


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


def test_the_default_configuration_is_the_field_s() -> None:
    rig = Rig(b"")
    assert headers_of(rig.ask({"model": "foo"})) == {MODEL: "foo", BASE: ""}
    assert list(rig.pipeline.instances) == [
        "body-field-to-header",
        "base-model-to-header",
        "single-profile-picker",
    ]
