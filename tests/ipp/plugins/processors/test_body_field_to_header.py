"""``body-field-to-header``: members of every type become headers, as they were written."""

from __future__ import annotations

import pytest

from dataplane.errors import BadRequestError
from tests.support.processors import Rig, headers_of, one_profile

MAPPING = {"baseModel": "qwen", "adapters": ["sql-lora-sheddable", "foo", "1"]}
FIELD = {
    "type": "body-field-to-header",
    "parameters": {"fieldName": "model", "headerName": "X-Gateway-Model-Name"},
}
CONFIG = one_profile([FIELD, {"type": "base-model-to-header", "parameters": {"mappings": [MAPPING]}}])
MODEL, BASE = "x-gateway-model-name", "x-gateway-base-model-name"


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


def test_a_header_of_the_client_gives_way_to_the_one_that_is_set() -> None:
    answer = Rig(CONFIG).ask({"model": "foo"}, ("x-gateway-model-name", "mine"))
    assert headers_of(answer)[MODEL] == "foo"
    assert list(answer.remove_headers) == []


@pytest.mark.parametrize("value", ["a\nb", "a\u0000", "x" * 5000])
def test_a_field_that_can_be_no_header_is_refused(value: str) -> None:
    with pytest.raises(BadRequestError, match="a field that becomes a header"):
        Rig(CONFIG).ask({"model": value})
