"""Configuration and policies from the API to a payload processor, and a start without the control plane."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dataplane.errors import RequestError
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from ipp.app import Processor
from ipp.options import parse_args
from tests.support.controlplane_command import Command
from tests.support.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FREE = (
    "--host=127.0.0.1",
    "--grpc-port=0",
    "--grpc-health-port=0",
    "--metrics-port=0",
    "--secure-serving=false",
)


def configuration(*more: dict[str, Any]) -> dict[str, Any]:
    plugins = [{"type": "guardrails"}, *more]
    refs = [{"pluginRef": each["type"]} for each in plugins]
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "PayloadProcessorConfig",
        "metadata": {"name": "edge"},
        "plugins": plugins,
        "profiles": [{"name": "default", "plugins": {"request": refs}}],
    }


def policy(word: str) -> dict[str, Any]:
    rule = {"name": "words", "type": "keywords", "parameters": {"words": [word]}}
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": "GuardrailPolicy",
        "metadata": {"name": "house"},
        "spec": {"rules": [rule]},
    }


def is_blocked(processor: Processor, text: str) -> bool:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    try:
        processor.handler.open().on_request(HttpRequest(Headers.of([]), body, None), lambda _: None)
    except RequestError as error:
        return error.client_code == "guardrail_keywords"
    return False


async def test_a_processor_runs_what_the_control_plane_says_and_goes_on_without_it(tmp_path: Path) -> None:
    command = Command(tmp_path)

    async def says(*words: str, text: str = "") -> str:
        return await asyncio.to_thread(command.says, *words, text=text)

    async def apply(*documents: dict[str, Any]) -> None:
        await says("apply", "-", text=yaml.safe_dump_all(documents))

    await asyncio.to_thread(command.begins)
    await says("controlplane", "user", "edges", "--role", "worker")
    token = tmp_path / "token"
    token.write_text(await says("controlplane", "token", "edges", "edge", "--processor", "edge"))
    await says("controlplane", "user", "ada", "--role", "operator")
    command.environment["POINTSMAN_TOKEN"] = (await says("controlplane", "token", "ada", "test")).strip()
    with command.serves(tmp_path / "api.log", "serve") as api:
        command.environment["POINTSMAN_URL"] = api.address
        await apply(configuration(), policy("sparrow"))
        with command.serves(tmp_path / "xds.log", "serve-xds") as xds:
            flags = [
                *(*FREE, "--name=edge", f"--xds-server={xds.address}", f"--xds-token-file={token}"),
                *(f"--xds-cache={tmp_path / 'last'}", "--xds-node-id=edge-1"),
            ]
            processor = Processor(parse_args(flags))
            await processor.start()
            try:
                await until(lambda: processor.reloader.revision.startswith("edge/1@"))
                await until(lambda: is_blocked(processor, "a sparrow"))
                assert not is_blocked(processor, "a herring")
                await apply(policy("herring"))
                await until(lambda: is_blocked(processor, "a herring"))
                assert not is_blocked(processor, "a sparrow")
                missing = {"type": "base-model-to-header", "parameters": {"path": str(tmp_path / "no")}}
                await apply(configuration(missing))
                await until(lambda: processor.reloader.refused_revision.startswith("edge/2@"))
                assert processor.reloader.revision.startswith("edge/1@")
                assert is_blocked(processor, "a herring")

                async def worker() -> dict[str, Any]:
                    found: dict[str, Any] = yaml.safe_load(await says("get", "workers", "edge-1"))
                    return found

                refused: list[dict[str, Any]] = []
                async with asyncio.timeout(PATIENCE_S):
                    while not refused:
                        answers = (await worker())["answers"]
                        refused = [each for each in answers if each["outcome"] == "nack"]
                assert [(each["path"], each["message"]) for each in refused[0]["problems"]] == [
                    (str(tmp_path / "no"), "cannot be read: No such file or directory")
                ]
            finally:
                await processor.stop()
    again = Processor(parse_args(flags))
    assert again.reloader.revision.startswith("edge/1@")
    await again.start()
    try:
        assert is_blocked(again, "a herring")
        assert not is_blocked(again, "a sparrow")
    finally:
        await again.stop()
