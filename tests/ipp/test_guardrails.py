"""The guardrails plugin: policies by tenant, model and pool, on requests, answers and streams."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError, RequestError
from dataplane.extproc.events import EndBody, LaterBody, Proceed
from dataplane.extproc.exchange import HttpRequest, HttpResponse
from dataplane.headers import Headers
from ipp.guardrails.verdicts import Refusal
from ipp.handler import UNCHANGED
from ipp.plugins.processors.guardrails import RefusedError
from ipp.policies import PolicyHolder
from tests.support.processors import Rig, headers_of, one_profile
from tests.support.profiles import FIELD
from tests.support.waiting import PATIENCE_S

PLUGIN: dict[str, Any] = {"type": "guardrails"}
CONFIG: dict[str, Any] = {
    "plugins": [PLUGIN],
    "profiles": [
        {
            "name": "default",
            "plugins": {"request": [{"pluginRef": "guardrails"}], "response": [{"pluginRef": "guardrails"}]},
        }
    ],
}
ALL = ["request", "response", "stream"]
WORDS = {"name": "words", "type": "keywords", "parameters": {"words": ["forbidden"]}, "stages": ALL}
MAIL = {
    "name": "mail",
    "type": "pii",
    "mode": "mask",
    "parameters": {"entities": ["email"]},
    "stages": ["request"],
}


def holder(**policies: dict[str, Any]) -> PolicyHolder:
    made = PolicyHolder(random.Random(1))
    problems: list[ConfigError] = []
    specs = [(name, convert(spec)) for name, spec in policies.items()]
    found = made.judge(specs, problems)
    assert found is not None, problems
    made.put(found, list(policies), "7")
    return made


def convert(spec: dict[str, Any]) -> GuardrailPolicySpec:
    return msgspec.convert(spec, GuardrailPolicySpec)


def chat(text: str, model: str = "m") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def test_a_blocked_request_ends_with_the_stable_code_and_the_public_message() -> None:
    rule = {**WORDS, "message": "We do not talk about that."}
    rig = Rig(CONFIG, holder(strict={"rules": [rule]}))
    with pytest.raises(RequestError) as caught:
        rig.ask(chat("this is Forbidden here"))
    error = json.loads(caught.value.body())["error"]
    assert caught.value.status == 400
    assert error == {
        "message": "We do not talk about that.",
        "type": "invalid_request_error",
        "param": "messages[0].content",
        "code": "guardrail_keywords",
    }
    labels = {
        "policy": "strict",
        "rule": "words",
        "type": "keywords",
        "stage": "request",
        "action": "block",
    }
    assert rig.counted("pointsman_ipp_guardrail_verdicts_total", **labels) == 1
    assert rig.counted("pointsman_ipp_requests_rejected_total", code="Guardrail") == 1
    assert rig.counted("ipp_success_total") == 0


async def test_a_large_body_is_looked_at_beside_the_event_loop() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    for text, is_refused in (("x" * 300_000, False), ("forbidden " + "x" * 300_000, True)):
        exchange = rig.handler.open()
        later: asyncio.Queue[Any] = asyncio.Queue()
        request = HttpRequest(Headers.of([]), json.dumps(chat(text)).encode(), None)
        assert exchange.on_request(request, later.put_nowait) is None
        found = await asyncio.wait_for(later.get(), PATIENCE_S)
        assert isinstance(found, RequestError) is is_refused


async def test_a_body_full_of_numbers_is_looked_at_beside_the_event_loop_and_prose_is_not() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    later: asyncio.Queue[Any] = asyncio.Queue()
    for text, is_beside in (("4111 " * 6000, True), ("words " * 5000, False)):
        request = HttpRequest(Headers.of([]), json.dumps(chat(text)).encode(), None)
        assert (rig.handler.open().on_request(request, later.put_nowait) is None) is is_beside
    assert await asyncio.wait_for(later.get(), 20) is not None


def test_a_harmless_request_keeps_its_bytes_and_is_not_compressed_on_its_way_back() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    answer = rig.ask(chat("hello"), ("accept-encoding", "gzip"))
    assert answer.body is None
    assert list(answer.remove_headers) == ["accept-encoding"]


def test_without_policies_nothing_is_waited_for_and_one_that_comes_holds_for_the_next_exchange() -> None:
    policies = holder()
    rig = Rig(CONFIG, policies)
    early = rig.handler.open()
    assert (early.needs_request_body, rig.handler.open()) == (False, early)
    request = HttpRequest(Headers.of([]), None, None)
    assert early.on_request(request, lambda _: None) is UNCHANGED
    policies.put(holder(strict={"rules": [WORDS]}).current, ["strict"], "8")
    assert rig.handler.open().needs_request_body is True
    with pytest.raises(RequestError):
        rig.ask(chat("forbidden"))
    policies.put(holder().current, [], "9")
    assert rig.handler.open().needs_request_body is False
    assert rig.counted("ipp_success_total") == 1
    assert rig.counted("pointsman_ipp_requests_total", profile="default") == 1
    assert rig.counted("pointsman_ipp_request_processing_seconds_count") == 1


def test_other_plugins_run_whatever_policies_there_are() -> None:
    rig = Rig(one_profile([PLUGIN, FIELD]), holder())
    assert rig.handler.open().needs_request_body is True
    assert headers_of(rig.ask(chat("forbidden"))) == {"x-model": "m"}
    labels = {"extension_point": "request", "plugin_type": "guardrails", "plugin_name": "guardrails"}
    assert rig.counted("ipp_plugin_duration_seconds_count", **labels) == 0


def test_requests_wait_for_policies_that_nobody_knows_yet() -> None:
    rig = Rig(CONFIG, PolicyHolder(random.Random(1)))
    with pytest.raises(RequestError, match="not known yet"):
        rig.ask(chat("hello"))


def test_what_is_masked_comes_back_to_its_caller() -> None:
    rig = Rig(CONFIG, holder(privacy={"rules": [MAIL]}))
    sent = rig.ask(chat("write to ada@example.org please"))
    assert sent.body is not None
    text = json.loads(sent.body)["messages"][0]["content"]
    assert "ada@example.org" not in text
    placeholder = text.removeprefix("write to ").removesuffix(" please")
    answer = rig.answer(("content-type", "application/json"))
    assert answer.transform is not None
    said = {"choices": [{"index": 0, "message": {"content": f"I wrote to {placeholder}."}}]}
    raw = json.dumps(said).encode()
    assert answer.transform.feed(raw[:40], False) == b""
    back = answer.transform.feed(raw[40:], True)
    assert json.loads(back)["choices"][0]["message"]["content"] == "I wrote to ada@example.org."


def test_a_stream_that_says_what_it_may_not_is_ended_cleanly() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    rig.ask({**chat("hello"), "stream": True})
    transform = rig.answer(("content-type", "text/event-stream")).transform
    assert transform is not None
    whole = b""
    try:
        for word in ("that is ", "forb", "idden", " ok?"):
            event = {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
            whole += transform.feed(b"data: " + json.dumps(event).encode() + b"\n\n", False)
        whole += transform.feed(b"data: [DONE]\n\n", True)
        pytest.fail("the stream went on")
    except EndBody as cut:
        whole += cut.last
    assert b"forb" not in whole
    assert b'"finish_reason":"content_filter"' in whole
    assert b"guardrail_keywords" in whole
    assert whole.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("headers", "model", "is_blocked"),
    [
        ({"x-llm-d-inference-fairness-id": "acme"}, "m", True),
        ({"x-llm-d-inference-fairness-id": "acme"}, "other", False),
        ({"x-llm-d-inference-fairness-id": "acme2"}, "m", False),
        ({}, "m", False),
    ],
)
def test_policies_hold_for_their_tenants_models_and_pools(
    headers: dict[str, str], model: str, is_blocked: bool
) -> None:
    spec = {"tenants": ["acme"], "models": ["m*"], "pools": ["large"], "rules": [WORDS]}
    config = {
        **CONFIG,
        "plugins": [{**PLUGIN, "parameters": {"pools": [{"name": "large", "models": ["m"]}]}}],
    }
    policies = holder(strict=spec)
    rig = Rig(config, policies)
    policies.know_pools(rig.pipeline.instances["guardrails"].pools)
    if is_blocked:
        with pytest.raises(RequestError):
            rig.ask(chat("forbidden", model), *headers.items())
    else:
        assert rig.ask(chat("forbidden", model), *headers.items()).body is None


@pytest.mark.parametrize(
    ("headers", "model", "is_blocked"),
    [
        ({}, "fast", True),
        ({}, "default", True),
        ({}, "small", False),
        ({"x-llm-d-model-name-rewrite": "llama-70b"}, "small", True),
        ({"x-gateway-model-name-rewrite": "llama-70b"}, "small", True),
        ({"x-llm-d-model-name-rewrite": "tiny"}, "small", False),
    ],
)
def test_a_policy_for_a_model_holds_for_what_is_served_by_it_under_another_name(
    headers: dict[str, str], model: str, is_blocked: bool
) -> None:
    rewrites = {"fast": ["tiny", "llama-8b"], "": ["llama-8b"], "small": ["tiny"]}
    pool = {"name": "large", "models": ["fast", "default", "small"], "rewrites": rewrites}
    config = {**CONFIG, "plugins": [{**PLUGIN, "parameters": {"pools": [pool]}}]}
    policies = holder(strict={"models": ["llama-*"], "rules": [WORDS]})
    rig = Rig(config, policies)
    policies.know_pools(rig.pipeline.instances["guardrails"].pools)
    if is_blocked:
        with pytest.raises(RequestError):
            rig.ask(chat("forbidden", model), *headers.items())
    else:
        assert rig.ask(chat("forbidden", model), *headers.items()).body is None


def test_a_model_that_is_not_allowed_cannot_be_asked_for_in_a_header() -> None:
    rule = {"name": "models", "type": "parameters", "parameters": {"allowedModels": ["small"]}}
    rig = Rig(CONFIG, holder(strict={"rules": [rule]}))
    assert rig.ask(chat("hello", "small")).body is None
    assert rig.ask(chat("hello", "small"), ("x-llm-d-model-name-rewrite", "small")).body is None
    with pytest.raises(RequestError) as caught:
        rig.ask(chat("hello", "small"), ("x-llm-d-model-name-rewrite", "large"))
    assert caught.value.client_code == "guardrail_parameters"


def test_guardrails_before_what_names_the_model_are_warned_of() -> None:
    base = {"type": "base-model-to-header", "parameters": {"mappings": []}}
    early = one_profile([PLUGIN, base])
    warning = (
        "profile 'default': 'guardrails' comes before 'base-model-to-header', so policies go by the model "
        "that the client names; put it behind"
    )
    assert warning in Rig(early, holder()).pipeline.warnings
    assert warning not in Rig(one_profile([base, PLUGIN]), holder()).pipeline.warnings


def test_a_body_nobody_can_look_into_is_refused_while_a_policy_holds() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    with pytest.raises(RequestError) as caught:
        rig.ask(b"--x\r\nforbidden", ("content-type", "multipart/form-data; boundary=x"))
    assert (caught.value.status, caught.value.client_code) == (400, "guardrail_unreadable")


def test_a_compressed_answer_is_refused_while_a_policy_holds_for_answers() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    rig.ask(chat("hello"))
    with pytest.raises(RequestError) as caught:
        rig.answer(("content-type", "application/json"), ("content-encoding", "gzip"))
    assert (caught.value.status, caught.value.client_code) == (502, "guardrail_unreadable")


def test_without_policies_nothing_is_looked_at() -> None:
    rig = Rig(CONFIG, holder())
    assert rig.ask(chat("forbidden")).body is None
    assert rig.answer(("content-type", "text/event-stream")).transform is None


def test_until_policies_are_known_requests_are_refused() -> None:
    rig = Rig(CONFIG, PolicyHolder(random.Random(1)))
    with pytest.raises(RequestError) as caught:
        rig.ask(chat("hello"))
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)


def test_a_configuration_that_wants_policies_nobody_has_is_refused() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Rig(one_profile([PLUGIN]))
    assert "neither --policies-file nor --xds-server says from where" in str(caught.value.errors[0])


@pytest.mark.parametrize("content_type", ["multipart/form-data", "application/octet-stream", "image/png"])
def test_an_upload_that_is_a_request_is_looked_at_as_one(content_type: str) -> None:
    rig = Rig(CONFIG, holder(strict={"models": ["m"], "rules": [WORDS]}))
    with pytest.raises(RequestError) as caught:
        rig.ask(chat("forbidden"), ("content-type", content_type))
    assert caught.value.client_code == "guardrail_keywords"
    assert rig.ask(chat("hello"), ("content-type", content_type)).body is None
    assert rig.ask(chat("forbidden", "other"), ("content-type", content_type)).body is None


FORM = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--x--\r\n'


@pytest.mark.parametrize(
    ("body", "is_refused"),
    [
        (FORM % b"m", True),
        (FORM % b"whisper", False),
        (FORM.replace(b'"model"', b"model") % b"whisper", False),
        (FORM % b"whisper" + FORM % b"m", True),
        (FORM % b"whisper" + b'name="model', True),
        (FORM.replace(b"model", b"file") % b"whisper", True),
        (FORM.replace(b"\r\n\r\n", b"\r\ncontent-type: text/plain\r\n\r\n") % b"whisper", False),
        (b"\0\1", True),
    ],
)
def test_an_upload_passes_only_when_no_policy_can_hold_for_its_model(body: bytes, is_refused: bool) -> None:
    rig = Rig(CONFIG, holder(strict={"models": ["m"], "rules": [WORDS]}))
    upload = ("content-type", "multipart/form-data; boundary=x")
    if is_refused:
        with pytest.raises(RequestError) as caught:
            rig.ask(body, upload)
        assert (caught.value.status, caught.value.client_code) == (400, "guardrail_unreadable")
    else:
        assert rig.ask(body, upload).body is None


@pytest.mark.parametrize("model", [" m", "m\n", "fast", "", None])
def test_a_policy_for_a_model_holds_whatever_it_is_called(model: str | None) -> None:
    mapping = {"baseModel": "m", "aliases": ["fast"]}
    base = {"type": "base-model-to-header", "parameters": {"mappings": [mapping], "headerName": "x-base"}}
    lists = {"request": [{"pluginRef": "base-model-to-header"}, {"pluginRef": "guardrails"}]}
    config = {"plugins": [base, PLUGIN], "profiles": [{"name": "default", "plugins": lists}]}
    rig = Rig(config, holder(strict={"models": ["m"], "rules": [WORDS]}))
    with pytest.raises(RequestError):
        rig.ask({**chat("forbidden"), "model": model})
    assert rig.ask(chat("forbidden", "fastest")).body is None


STORED = {"object": "response", "status": "completed", "output": [{"content": [{"text": "forbidden"}]}]}


def test_an_answer_that_is_fetched_later_is_looked_at_by_the_policies_of_all_models() -> None:
    rig = Rig(CONFIG, holder(strict={"models": ["m"], "tenants": ["acme"], "rules": [WORDS]}))
    asked = rig.ask(b"", ("accept-encoding", "gzip"), ("x-llm-d-inference-fairness-id", "acme"))
    assert list(asked.remove_headers) == ["accept-encoding"]
    transform = rig.answer(("content-type", "application/json")).transform
    assert transform is not None
    found = json.loads(transform.feed(json.dumps(STORED).encode(), True))
    assert (found["status"], found["error"]["code"]) == ("incomplete", "guardrail_keywords")
    assert rig.counted("ipp_success_total") == 0
    rig.ask(b"", ("accept-encoding", "gzip"))
    assert rig.answer(("content-type", "application/json")).transform is None


def test_a_list_of_models_is_no_text() -> None:
    words = {**WORDS, "parameters": {"words": ["llama"]}}
    rig = Rig(CONFIG, holder(strict={"rules": [words]}))
    rig.ask(b"")
    transform = rig.answer(("content-type", "application/json")).transform
    listed = (
        b'{"object":"list","data":[{"id":"llama-8b","object":"model","owned_by":"llama","root":"llama"}]}'
    )
    assert transform is not None
    assert transform.feed(listed, True) == listed


def test_without_known_policies_nothing_is_fetched() -> None:
    rig = Rig(CONFIG, PolicyHolder(random.Random(1)))
    with pytest.raises(RequestError) as caught:
        rig.ask(b"")
    assert caught.value.status == 503
    assert rig.counted("pointsman_ipp_requests_rejected_total", code="ServiceUnavailable") == 1


async def test_a_large_answer_is_looked_at_beside_the_event_loop() -> None:
    rig = Rig(CONFIG, holder(strict={"rules": [WORDS]}))
    for text, is_withheld in (("x" * 300_000, False), ("forbidden " + "x" * 300_000, True)):
        rig.ask(chat("hello"))
        transform = rig.answer(("content-type", "application/json")).transform
        assert transform is not None
        raw = json.dumps({"choices": [{"index": 0, "message": {"content": text}}]}).encode()
        with pytest.raises(LaterBody) as later:
            transform.feed(raw, True)
        taken: asyncio.Queue[bytes] = asyncio.Queue()
        later.value.start(taken.put_nowait)
        found = await asyncio.wait_for(taken.get(), 20)
        assert (b"forbidden" in found, b"content_filter" in found) == (False, is_withheld)
        assert is_withheld or found == raw


@pytest.mark.parametrize(("status", "told"), [(400, "invalid_request_error"), (503, "server_error")])
def test_what_is_no_fault_of_the_request_is_told_as_one_of_the_server(status: int, told: str) -> None:
    refused = RefusedError(Refusal("guardrail_unavailable", "No verdict.", status=status).outcome())
    assert (refused.status, json.loads(refused.body())) == (
        status,
        {"error": {"message": "No verdict.", "type": told, "param": None, "code": "guardrail_unavailable"}},
    )


def test_bodies_that_the_gateway_does_not_show_may_not_pass_where_a_policy_holds() -> None:
    """A gateway that asks for no bodies, or too late, is set up wrongly; nothing passes unseen through it."""
    rig = Rig(CONFIG, holder(strict={"tenants": ["acme"], "models": ["m"], "rules": [WORDS]}))
    tenant = ("x-llm-d-inference-fairness-id", "acme")
    with pytest.raises(RequestError) as caught:
        rig.handler.open().on_request(HttpRequest(Headers.of([tenant]), None, None), rig.later.append)
    assert (caught.value.status, caught.value.client_code) == (500, "guardrail_unreadable")
    assert "request_body_mode must be FULL_DUPLEX_STREAMED" in caught.value.message
    passed = rig.handler.open().on_request(HttpRequest(Headers.of([]), None, None), rig.later.append)
    assert isinstance(passed, Proceed)
    rig.ask(chat("hello"), tenant)
    response = HttpResponse(Headers.of([(":status", "200")]), 200, False, None, is_shown=False)
    with pytest.raises(RequestError) as caught:
        rig.exchange.on_response_headers(response)
    assert "response_body_mode must be FULL_DUPLEX_STREAMED" in caught.value.message
    asked_only = Rig(CONFIG, holder(strict={"rules": [{**WORDS, "stages": ["request"]}]}))
    asked_only.ask(chat("hello"))
    assert isinstance(asked_only.exchange.on_response_headers(response), Proceed)
