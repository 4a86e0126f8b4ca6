"""A whole payload processor in one process: it starts, takes new configurations, and refuses bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dataplane.config.reload import revision_of
from dataplane.errors import ConfigError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from ipp.app import Processor
from ipp.handler import ProcessorExchange
from ipp.options import parse_args
from tests.support.processors import headers_of

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {{type: body-field-to-header, parameters: {{fieldName: model, headerName: {header}}}}}
profiles:
- {{name: default, plugins: {{request: [{{pluginRef: body-field-to-header}}]}}}}
"""
FREE = (
    "--host=127.0.0.1",
    "--grpc-port=0",
    "--grpc-health-port=0",
    "--metrics-port=0",
    "--secure-serving=false",
)


def ask(exchange: ProcessorExchange) -> dict[str, str]:
    found = exchange.on_request(HttpRequest(Headers.of([]), b'{"model": "m"}', None), lambda _: None)
    assert isinstance(found, Proceed)
    return headers_of(found)


async def page(processor: Processor, path: str, *, post: bool = False) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{processor.admin.port}{path}"
    async with aiohttp.ClientSession() as session, session.request("POST" if post else "GET", url) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text


async def test_a_new_configuration_runs_for_new_requests_and_a_bad_one_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(header="x-one"))
    processor = Processor(parse_args([*FREE, f"--config-file={file}", "--watch-config=false"]))
    await processor.start()
    try:
        before = processor.handler.open()
        file.write_text(CONFIG.format(header="x-two"))
        assert await page(processor, "/debug/reload", post=True) == (200, {"refused": []})
        assert ask(before) == {"x-one": "m"}
        assert ask(processor.handler.open()) == {"x-two": "m"}
        broken = CONFIG.format(header="x-three").replace("body-field", "body-feild")
        file.write_text(broken)
        status, said = await page(processor, "/debug/reload", post=True)
        assert status == 400
        assert said["refused"][0] == (
            "plugins[0]: plugin type 'body-feild-to-header' is not registered "
            '(did you mean "body-field-to-header"?)'
        )
        assert ask(processor.handler.open()) == {"x-two": "m"}
        _, config = await page(processor, "/debug/config")
        assert config["reload"]["revision"] == revision_of(CONFIG.format(header="x-two").encode())
        assert config["buffersRequests"] is True
        assert (await page(processor, "/readyz"))[0] == 200
        _, metrics = await page(processor, "/metrics")
        assert 'pointsman_ipp_config_reloads_total{outcome="refused"} 1\n' in metrics
        assert 'ipp_plugin_duration_seconds_count{extension_point="request",' in metrics
    finally:
        await processor.stop()


def test_a_configuration_with_mistakes_ends_the_start_with_code_2_and_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(header="x y").replace("name: default", "nam: default"))
    command = [sys.executable, "-m", "cli.main", "ipp", *FREE, f"--config-file={file}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert [line.partition(f"pointsman ipp: {file}: ")[2] for line in done.stderr.splitlines()] == [
        'profiles[0].nam: unknown field (did you mean "name"?)',
        "profiles[0].name: is missing",
        "plugins[0].parameters.headerName: 'x y' is no name of a header",
    ]


async def test_a_port_that_is_taken_ends_the_start_and_leaves_nothing_up() -> None:
    first = Processor(parse_args(FREE))
    await first.start()
    try:
        second = Processor(parse_args([*FREE[:1], *FREE[2:], f"--grpc-port={first.server.port}"]))
        with pytest.raises(ConfigError, match="--grpc-port"):
            await second.start()
        assert second.admin.port == 0
    finally:
        await first.stop()
