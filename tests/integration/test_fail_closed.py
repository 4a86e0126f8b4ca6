"""Policies in force while their processor is killed, stopped, and given new files: nothing passes unguarded.

The gateway fails closed. One policy blocks every request, so whatever a model server sees of them is a leak.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from tests.support.guarded import Guarded, chat, event, guarded_gateway

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

CONFIG = """
pools:
  - {name: a, models: [alpha, beta], simulator: {replicas: 1, profile: instant}}
payloadProcessor:
  failureMode: FailClose
  config:
    plugins:
    - {type: guardrails}
    profiles:
    - name: default
      plugins: {request: [{pluginRef: guardrails}], response: [{pluginRef: guardrails}]}
  policies:
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {name: nothing}
    spec:
      models: [alpha]
      rules:
      - {name: all, type: patterns, parameters: {patterns: ["(?s)."]}}
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {name: answers}
    spec:
      models: [beta]
      rules:
      - {name: words, type: keywords, stages: [response, stream], parameters: {words: [forbidden]}}
"""
CLIENTS = 12
BLOCKED = (400, "guardrail_patterns")
AWAY = (503, "upstream_unavailable")
STEPS_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    async with guarded_gateway(CONFIG, tmp_path_factory.mktemp("closed")) as running:
        yield running


class Load:
    """Clients that ask again and again for what nobody may have."""

    def __init__(self, guarded: Guarded) -> None:
        self.guarded = guarded
        self.got: Counter[tuple[int, str]] = Counter()
        self._stop = False

    async def _ask(self) -> None:
        while not self._stop:
            answer = await self.guarded.ask(chat("hello", stream=len(self.got) % 2 == 0))
            assert answer.seen == [], answer.body
            self.got[answer.status, answer.error["code"]] += 1

    async def until(self, outcome: tuple[int, str]) -> None:
        """Wait until clients get this once more."""
        before = self.got[outcome]
        async with asyncio.timeout(STEPS_S):
            while self.got[outcome] == before:  # noqa: ASYNC110 - clients have no event for it
                await asyncio.sleep(0.01)

    async def during(self, work: Callable[[Load], Awaitable[None]]) -> Counter[tuple[int, str]]:
        """What clients got while this was done."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._ask())
            try:
                await self.until(BLOCKED)
                await work(self)
                await self.until(BLOCKED)
            finally:
                self._stop = True
        return self.got


async def test_a_processor_that_dies_lets_nothing_pass(guarded: Guarded) -> None:
    ipp = guarded.gateway.children["ipp"]

    async def work(load: Load) -> None:
        for number in (signal.SIGKILL, signal.SIGTERM):
            before = ipp.restarts
            assert ipp.pid is not None
            os.kill(ipp.pid, number)
            await load.until(AWAY)
            async with asyncio.timeout(STEPS_S):
                while ipp.restarts == before:  # noqa: ASYNC110 - the supervisor has no event for it
                    await asyncio.sleep(0.01)
            await load.until(BLOCKED)

    got = await Load(guarded).during(work)
    assert got.keys() == {BLOCKED, AWAY}
    assert guarded.server.seen == {}


async def test_new_files_let_nothing_pass_in_between(guarded: Guarded) -> None:
    plan = guarded.gateway.plan.processor
    assert plan is not None
    policies, config = plan.policies_file, plan.config_file
    whole = policies.read_text(), config.read_text()
    url = f"http://127.0.0.1:{plan.metrics_port}/debug/reload"

    async def reload(status: int) -> None:
        async with guarded.gateway.session.post(url) as answer:
            assert answer.status == status

    def renamed(number: int) -> str:
        documents: list[dict[str, Any]] = list(yaml.safe_load_all(whole[0]))
        documents[0]["spec"]["rules"][0]["name"] = f"all-{number}"
        return "\n---\n".join(json.dumps(each) for each in documents)

    async def work(load: Load) -> None:
        for number in range(5):
            for file, text, status in (
                (policies, renamed(number), 200),
                (config, whole[1] + f"# {number}\n", 200),
                (policies, "{", 400),
                (config, "plugins: [", 400),
                (policies, whole[0], 400),
                (config, whole[1], 200),
            ):
                _write(file, text)
                await reload(status)
                await load.until(BLOCKED)

    got = await Load(guarded).during(work)
    assert got.keys() <= {BLOCKED, AWAY}  # a busy machine may be without a processor for a moment
    assert guarded.server.seen == {}


def _write(file: Path, text: str) -> None:
    file.write_text(text)


async def _rest(answer: aiohttp.ClientResponse, came: bytearray) -> None:
    while piece := await answer.content.readany():
        came += piece


async def test_a_stream_whose_processor_dies_is_broken_off(guarded: Guarded) -> None:
    key, go_on = "dying", asyncio.Event()
    left = guarded.server.left[key] = asyncio.Event()

    async def write(writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        # The end of a text is held back until it goes on.
        first, second = event("all is well ") + event("-" * 100), event("forbidden " * 50)
        writer.write(head + b"%x\r\n%b\r\n" % (len(first), first))
        await writer.drain()
        await go_on.wait()
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(second), second))
        await writer.drain()

    guarded.server.answers[key] = write
    url = guarded.gateway.plan.url + "/v1/chat/completions"
    body = json.loads(chat("x", stream=True)) | {"model": "beta"}
    async with guarded.session.post(url, json=body, headers={"x-test-key": key}) as answer:
        came = bytearray(await answer.content.readany())
        assert b"all is well" in came
        ipp = guarded.gateway.children["ipp"]
        assert ipp.pid is not None
        os.kill(ipp.pid, signal.SIGKILL)
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(_rest(answer, came), STEPS_S)
    go_on.set()
    await asyncio.wait_for(left.wait(), STEPS_S)
    assert b"forbidden" not in came
    guarded.server.seen.clear()
