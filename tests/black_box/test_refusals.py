"""Requests that make no sense, seen from outside: refused with the place of the mistake, nothing booked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import DROPPED, Pod, Site, refusal, request_body, request_headers

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/completions", b"no healthy upstream", "JSON"),
        ("/v1/completions", {"prompt": "hello world"}, "model"),
        ("/v1/chat/completions", {"model": "m", "messages": []}, "messages"),
        ("/v1/completions", {"model": "m"}, "prompt"),
    ],
    ids=["no JSON", "no model", "no messages", "no prompt"],
)
async def test_a_body_that_makes_no_sense_is_a_bad_request(
    tmp_path: Path, path: str, body: Any, says: str
) -> None:
    async with Site(tmp_path, Pod(), Pod()) as site:
        status, error, headers = refusal(
            await site.converse(request_headers(path=path), request_body(body, end=True))
        )

        assert (status, error["type"]) == (400, "invalid_request_error")
        assert says in error["message"]
        assert headers["content-type"] == "application/json"
        assert site.picker.table.inflight.sum() == 0
        assert await site.sample("llm_d_epp_request_error_total", error_code="BadRequest") == 1


async def test_a_path_that_no_parser_claims_is_named(tmp_path: Path) -> None:
    config = "plugins: [{type: queue-scorer}]\nrequestHandler: {parsers: [{pluginRef: openai-parser}]}\n"
    async with Site(tmp_path, Pod(), config=config) as site:
        head = request_headers(path="/v1/messages?beta=true")
        status, error, _ = refusal(await site.converse(head, request_body(b"{}", end=True)))
        assert (status, error["type"]) == (400, "invalid_request_error")
        said = "no parser registered matching path suffix for: /v1/messages; known: chat/completions, "
        assert error["message"].startswith(said)


async def test_a_profile_that_is_not_there_is_no_sign_of_saturation(tmp_path: Path) -> None:
    config = """
plugins: [{type: header-profile-handler}, {type: queue-scorer}]
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: queue-scorer}]}
- {name: prefill, plugins: [{pluginRef: queue-scorer}]}
"""
    async with Site(tmp_path, Pod(), config=config, flags=["--allow-experimental-plugins"]) as site:
        body = {"model": "m", "prompt": "p"}
        assert await site.picked(body, ("epp-profile", "prefill")) == site.key(0)
        status, error, headers = refusal(await site.ask(body, ("epp-profile", "made-up")))
        assert status == 429
        assert error["message"] == "header epp-profile names the unknown scheduling profile 'made-up'"
        assert DROPPED not in headers
        assert site.picker.table.inflight.sum() == 0


async def test_a_request_refused_before_it_is_read_is_counted(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), flags=["--max-request-body=10"]) as site:
        status, _, _ = refusal(await site.converse(request_headers(), request_body(b"x" * 11, end=True)))
        assert status == 413
        labels = {"error_code": "PayloadTooLarge", "model_name": ""}
        assert await site.sample("llm_d_epp_request_error_total", **labels) == 1


async def test_defects_of_plugins_are_counted_and_their_requests_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a plugin's defect")

    async with Site(tmp_path, Pod()) as site:
        assert await site.sample("pointsman_epp_defects_total") == 0
        monkeypatch.setattr(site.picker.current.director, "admit", fail)
        status, error, _ = refusal(await site.ask({"model": "m", "prompt": "p"}))
        assert (status, error["message"]) == (500, "the request could not be processed")
        assert await site.sample("pointsman_epp_defects_total") == 1
        assert await site.sample("pointsman_epp_malformed_streams_total") == 0
        assert await site.sample("llm_d_epp_request_error_total", error_code="Internal") == 1
