"""The two plugins that name model and base model in headers, as in the cases of the field."""

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


def test_a_request_without_a_model_gets_no_header_and_is_counted() -> None:
    rig = Rig(CONFIG)
    assert headers_of(rig.ask({"prompt": "hello"})) == {}
    assert rig.counted("ipp_body_field_not_found_total", field="model") == 2
    assert rig.counted("ipp_success_total") == 1


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


def test_the_default_configuration_is_the_field_s() -> None:
    rig = Rig(b"")
    assert headers_of(rig.ask({"model": "foo"})) == {MODEL: "foo", BASE: ""}
    assert list(rig.pipeline.instances) == [
        "body-field-to-header",
        "base-model-to-header",
        "single-profile-picker",
    ]
