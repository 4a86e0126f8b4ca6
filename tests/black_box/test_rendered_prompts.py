"""Prompts that a vLLM server renders, seen from outside: who waits for it, and what its troubles cost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import (
    ANSWERED,
    Pod,
    Site,
    destination,
    refusal,
    request_body,
    request_headers,
    streamed,
)
from tests.support.rendering import Renderer, rendering
from tests.support.waiting import until

pytestmark = pytest.mark.integration

RANGE = "llm-d.ai/context-length-range"
COMPLETION = {"model": "m", "prompt": "a few words"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "a few words"}]}
SHORT, LONG = 0, 1
"""The servers for prompts up to 100 tokens and for longer ones."""
OUTCOMES = "pointsman_epp_prompt_renderings_total"


def config(renderer: Renderer, timeout: str = "20s", model: str = "") -> str:
    """Servers are chosen by the length of the prompt alone."""
    vllm = f"{{url: {renderer.url!r}, timeout: {timeout}}}"
    return f"""
plugins:
- {{type: token-producer, parameters: {{modelName: {model!r}, vllm: {vllm}}}}}
- {{type: context-length-aware}}
- {{type: queue-scorer}}
schedulingProfiles:
- name: default
  plugins: [{{pluginRef: context-length-aware, weight: 10}}, {{pluginRef: queue-scorer, weight: 1}}]
"""


PODS = (Pod(labels={RANGE: "0-100"}), Pod(labels={RANGE: "101-100000"}))


def asking(body: Any, **hints: Any) -> tuple[Any, Any]:
    """The messages of one request."""
    return request_headers(), request_body(body, end=True, **hints)


async def served(site: Site, body: Any) -> str:
    """Destination of one request that is answered."""
    return destination((await site.patiently(asking(body), *ANSWERED))[0])


async def test_tokens_are_counted_as_the_server_says_and_the_body_stays_as_it_is(tmp_path: Path) -> None:
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer, model="base")) as site:
        body = b'{ "model" : "m",  "prompt":"a few words" }'
        answers = await site.patiently(asking(body), *ANSWERED)
        assert destination(answers[0]) == site.key(LONG)
        assert streamed(answers, "request_body") == (body, [True])
        renderer.tokens = 7
        chat = request_headers(path="/base/v1/chat/completions?x=y")
        answers = await site.patiently((chat, request_body(CHAT, end=True)), *ANSWERED)
        assert destination(answers[0]) == site.key(SHORT)
        assert renderer.asked == [
            ("/v1/completions/render", {**COMPLETION, "model": "base"}),
            ("/v1/chat/completions/render", {**CHAT, "model": "base"}),
        ]
        assert await site.sample(OUTCOMES, outcome="rendered") == 2
        assert site.picker.table.inflight.sum() == 0


async def test_what_needs_no_rendering_does_not_wait(tmp_path: Path) -> None:
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer)) as site:
        assert await served(site, {"model": "m", "prompt": list(range(200))}) == site.key(LONG)
        for path, body in (("/v1/embeddings", {"model": "m", "input": "x" * 900}), ("/v1/models", None)):
            asked = [request_headers(end=body is None, path=path)]
            asked += [] if body is None else [request_body(body, end=True)]
            await site.patiently(asked, *ANSWERED)
        status, *_ = refusal(await site.ask(b"no JSON"))
        assert status == 400
        assert renderer.asked == []


async def test_a_server_that_fails_costs_no_request_and_is_soon_left_alone(tmp_path: Path) -> None:
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer)) as site:
        renderer.status = 503
        for _ in range(6):
            assert await served(site, COMPLETION) == site.key(SHORT), "the estimate is three tokens"
        assert len(renderer.asked) == 3
        assert await site.sample(OUTCOMES, outcome="failed") == 3
        assert await site.sample(OUTCOMES, outcome="skipped") == 3
        state = json.loads(await site.page("/debug/plugins/state"))["plugins"]["token-producer"]["state"]
        assert state["failuresInARow"] == 3
        assert state["lastFailure"] == "/v1/completions/render: status 503"


async def test_a_server_that_hangs_is_waited_for_three_times(tmp_path: Path) -> None:
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer, "50ms")) as site:
        renderer.hangs = True
        for _ in range(5):
            assert await served(site, COMPLETION) == site.key(SHORT)
        assert len(renderer.asked) == 3


async def test_a_client_that_leaves_while_its_prompt_is_rendered_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer)) as site:
        renderer.hangs = True
        messages = asking(COMPLETION)
        leaving = [asyncio.create_task(site.patiently(messages)) for _ in range(5)]
        await until(lambda: len(renderer.asked) == 5)
        assert site.picker.table.inflight.sum() == 0
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await until(lambda: site.picker.processor.inflight == 0)
        renderer.hangs = False
        answers = await site.patiently(messages, *ANSWERED)
        assert destination(answers[0]) == site.key(LONG)
        assert site.picker.table.inflight.sum() == 0
        assert await site.sample("llm_d_epp_request_total") == 1


async def test_the_deadline_of_a_request_holds_while_its_prompt_is_rendered(tmp_path: Path) -> None:
    flags = ["--request-timeout", "200ms"]
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer), flags=flags) as site:
        renderer.hangs = True
        status, *_ = refusal(await site.patiently(asking(COMPLETION)))
        assert status == 504
        renderer.hangs = False
        await until(lambda: site.picker.processor.inflight == 0)
        assert site.picker.table.inflight.sum() == 0
        assert await served(site, COMPLETION) == site.key(LONG)


async def test_a_request_that_waits_is_refused_like_any_other(tmp_path: Path) -> None:
    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer)) as site:
        status, error, _ = refusal(await site.patiently(asking(COMPLETION, subset=["10.0.0.9:1"])))
        assert (status, error["message"]) == (
            503,
            "failed to find endpoint candidates for serving the request",
        )
        assert await site.sample("llm_d_epp_request_error_total", error_code="ServiceUnavailable") == 1
        assert await site.sample("pointsman_epp_defects_total") == 0


async def test_a_defect_after_waiting_costs_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a plugin's defect")

    async with rendering() as renderer, Site(tmp_path, *PODS, config=config(renderer)) as site:
        monkeypatch.setattr(site.picker.current.director, "admit", fail)
        status, error, _ = refusal(await site.patiently(asking(COMPLETION)))
        assert (status, error["message"]) == (500, "the request could not be processed")
        assert await site.sample("pointsman_epp_defects_total") == 1
