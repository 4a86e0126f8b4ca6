"""Which model is asked for and how responses name it, seen from outside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import (
    Pod,
    Site,
    destination,
    refusal,
    removed_headers,
    request_body,
    request_headers,
    response_body,
    response_headers,
    set_headers,
    streamed,
)

pytestmark = pytest.mark.integration

HEADER = "x-llm-d-model-name-rewrite"
COMPLETION = {"model": "my-model", "prompt": "test1"}
JSON = ("content-type", "application/json")
SSE = ("content-type", "text/event-stream")


def objects(folder: Path, *documents: dict[str, Any]) -> list[str]:
    """The flags that have the picker read these documents."""
    path = folder / "objects.yaml"
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))
    return ["--objects-file", str(path)]


def rewrite(
    name: str, created: str, matches: Iterable[str], *targets: tuple[str, int | None]
) -> dict[str, Any]:
    """An InferenceModelRewrite with one rule."""
    rule = {
        "matches": [{"model": {"type": "Exact", "value": model}} for model in matches],
        "targets": [{"modelRewrite": t} | ({} if w is None else {"weight": w}) for t, w in targets],
    }
    return {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"poolRef": {"name": "pool"}, "rules": [rule]},
    }


OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


async def target_of(site: Site, body: Any = COMPLETION, *headers: tuple[str, str]) -> str:
    """The model that the model server is asked for."""
    sent, ends = streamed(await site.ask(body, *headers), "request_body")
    assert ends[-1]
    model: str = json.loads(sent)["model"]
    return model


async def test_the_header_names_the_model_and_the_objective_the_priority(tmp_path: Path) -> None:
    objective = {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": "gold"},
        "spec": {"poolRef": {"name": "pool"}, "priority": 2},
    }
    body = b'{ "prompt":"test1", "model" : "my-model", "top_p":1.0 }'
    headers = ((HEADER, "my-model-12345"), ("x-llm-d-inference-objective", "gold"))
    announced = ("content-length", str(len(body)))
    pods = (Pod(3, 0.2), Pod(0, 0.1), Pod(10, 0.2))
    async with Site(tmp_path, *pods, flags=objects(tmp_path, objective)) as site:
        answers = await site.ask(body, *headers, announced)

        assert [answer.WhichOneof("response") for answer in answers] == ["request_headers", "request_body"]
        assert destination(answers[0]) == site.key(1)
        assert removed_headers(answers[0]) == {name for name, _ in headers}
        sent, _ = streamed(answers, "request_body")
        assert sent == body.replace(b'"my-model"', b'"my-model-12345"')
        assert set_headers(answers[0])["content-length"] == str(len(sent))
        assert (
            await site.sample("llm_d_epp_request_total", priority="2", target_model_name="my-model-12345")
            == 1
        )


async def test_an_exact_rule_overrides_the_header_and_metrics_show_the_target(tmp_path: Path) -> None:
    rules = objects(tmp_path, rewrite("canary", OLD, ["my-model"], ("by-rule", None)))
    async with Site(tmp_path, Pod(), flags=rules) as site:
        assert await target_of(site, COMPLETION, (HEADER, "by-header")) == "by-rule"
        labels = {"model_name": "my-model", "target_model_name": "by-rule"}
        assert await site.sample("llm_d_epp_request_total", **labels) == 1
        decided = {"model_rewrite_name": "canary", "model_name": "my-model", "target_model": "by-rule"}
        assert await site.sample("llm_d_epp_model_rewrite_decisions_total", **decided) == 1
        assert await target_of(site, {**COMPLETION, "model": "other"}, (HEADER, "by-header")) == "by-header"


async def test_a_generic_rule_serves_a_request_without_a_model(tmp_path: Path) -> None:
    rules = objects(tmp_path, rewrite("default", OLD, [], ("fallback", None)))
    async with Site(tmp_path, Pod(), flags=rules) as site:
        assert await target_of(site, {"prompt": "test1"}) == "fallback"
        assert await site.sample("llm_d_epp_request_total", model_name="", target_model_name="fallback") == 1


async def test_a_request_without_a_model_is_refused_when_no_rule_is_generic(tmp_path: Path) -> None:
    rules = objects(tmp_path, rewrite("exact", OLD, ["m"], ("t", None)))
    async with Site(tmp_path, Pod(), flags=rules) as site:
        status, error, _ = refusal(await site.ask({"prompt": "hello world"}))
        assert (status, error["message"], error["param"]) == (400, "model not found in request body", "model")


async def test_of_two_rules_for_one_model_that_of_the_older_object_decides(tmp_path: Path) -> None:
    rules = objects(
        tmp_path,
        rewrite("a", NEW, ["my-model"], ("new", None)),
        rewrite("z", OLD, ["my-model"], ("old", None)),
        rewrite("generic", "2025-01-01T00:00:00Z", [], ("generic", None)),
    )
    async with Site(tmp_path, Pod(), flags=rules) as site:
        assert await target_of(site) == "old"
        assert await target_of(site, {**COMPLETION, "model": "other"}) == "generic"


async def test_weights_share_requests_out_and_targets_without_one_are_never_chosen(tmp_path: Path) -> None:
    rules = objects(tmp_path, rewrite("split", OLD, ["my-model"], ("a", 80), ("b", 20), ("never", None)))
    async with Site(tmp_path, Pod(), flags=rules) as site:
        chosen = Counter([await target_of(site) for _ in range(200)])
        assert set(chosen) == {"a", "b"}
        assert 120 <= chosen["a"] <= 190


@pytest.mark.parametrize("at", [1, 12, 15, 22, 25, 60])
async def test_a_response_names_the_requested_model_wherever_it_is_cut(tmp_path: Path, at: int) -> None:
    text = b'{"text":"\\"model\\":\\"target\\""}'
    body = b'{"id":"x","model":"target","choices":[%b],"usage":{"prompt_tokens":7}}' % text
    async with Site(tmp_path, Pod()) as site:
        asked = (request_headers((HEADER, "target")), request_body(COMPLETION, end=True))
        answers = await site.converse(
            *asked,
            response_headers(JSON, ("content-length", str(len(body)))),
            response_body(body[:at]),
            response_body(body[at:], end=True),
        )
        (head,) = [answer for answer in answers if answer.WhichOneof("response") == "response_headers"]
        assert removed_headers(head) == {"content-length"}
        sent, ends = streamed(answers, "response_body")
        assert sent == body.replace(b'"model":"target"', b'"model":"my-model"', 1)
        assert ends.count(True) == 1
        assert ends[-1]
        assert await site.sample("llm_d_epp_request_input_tokens_sum", model_name="my-model") == 7


async def test_events_name_the_requested_model_and_the_empty_end_is_passed(tmp_path: Path) -> None:
    chunks = (
        b'data: {"model":"target","choices":[]}\n\ndata: {"mod',
        b'el": "target","usage":{"prompt_tokens":7,"completion_tokens":10}}\n\ndata: [DONE]\n\n',
        b"",
    )
    async with Site(tmp_path, Pod()) as site:
        bodies = [response_body(chunk, end=i == len(chunks)) for i, chunk in enumerate(chunks, 1)]
        asked = (request_headers((HEADER, "target")), request_body({**COMPLETION, "stream": True}, end=True))
        answers = await site.converse(*asked, response_headers(SSE), *bodies)
        sent, ends = streamed(answers, "response_body")
        assert sent == b"".join(chunks).replace(b"target", b"my-model")
        assert ends == [False, False, True]
        assert await site.sample("llm_d_epp_request_input_tokens_sum", target_model_name="target") == 7
