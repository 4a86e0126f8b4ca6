"""Somebody who is asked about answers, through Envoy: what is flagged is withheld, all else comes whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from aiohttp import web

from tests.support.gateway import started_gateway

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - {{name: a, models: [alpha], simulator: {{replicas: 1, profile: instant, flags: [--mode, echo]}}}}
payloadProcessor:
  config:
    plugins:
    - {{type: guardrails}}
    profiles:
    - name: default
      plugins: {{request: [{{pluginRef: guardrails}}], response: [{{pluginRef: guardrails}}]}}
  policies:
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {{name: house}}
    spec:
      rules:
      - name: legal
        type: webhook
        stages: [response, stream]
        message: Legal has a say in this.
        parameters: {{url: "http://127.0.0.1:{port}/", timeout: 2s}}
"""


@pytest.fixture
async def judge() -> AsyncIterator[int]:
    """The port of somebody who flags contracts, after some thought."""

    async def answer(request: web.Request) -> web.Response:
        question = await request.json()
        said = " ".join(each["text"] for each in question["texts"])
        await asyncio.sleep(60 if "silence" in said else 0.3)
        return web.json_response({"flagged": "contract" in said})

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def test_an_answer_waits_for_its_verdict(judge: int, tmp_path: Path) -> None:
    async with (
        started_gateway(CONFIG.format(port=judge), tmp_path) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.plan.url}/v1", api_key="none", max_retries=0) as client,
    ):

        async def ask(text: str) -> openai.types.chat.chat_completion.Choice:
            messages = [{"role": "user", "content": text}]
            return (await client.chat.completions.create(model="alpha", messages=messages)).choices[0]

        good, bad, none = await asyncio.gather(
            ask("a song " * 500), ask("the contract"), ask("a song of silence")
        )
        assert "a song a song" in str(good.message.content)
        assert good.finish_reason != "content_filter"
        assert (bad.finish_reason, bad.message.content) == ("content_filter", "")
        assert (none.finish_reason, none.message.content) == ("content_filter", "")

        async def streamed(text: str) -> tuple[str, str | None]:
            """What came, and the code of the error that ended it."""
            messages = [{"role": "user", "content": text}]
            stream = await client.chat.completions.create(model="alpha", messages=messages, stream=True)
            said = ""
            try:
                async for chunk in stream:
                    said += "".join(choice.delta.content or "" for choice in chunk.choices)
            except openai.APIError as error:
                return said, error.code
            return said, None

        good_text, bad_text = "a song " * 500, "a song " * 300 + "the contract " + "a song " * 300
        good_stream, bad_stream, none_stream = await asyncio.gather(
            streamed(good_text), streamed(bad_text), streamed("a song of silence")
        )
        assert good_stream[0].startswith(good_text.strip())
        assert (good_stream[1], bad_stream[1]) == (None, "guardrail_webhook")
        assert "contract" not in bad_stream[0]
        assert bad_text.startswith(bad_stream[0])
        assert none_stream == ("", "guardrail_unavailable")
