"""Models chosen before routing, through a real Envoy: ``auto``, groups, sessions, 429 when none is left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONFIG = """
pools:
  - {{name: a, models: [alpha], simulator: {{replicas: 1, profile: instant}}}}
  - {{name: b, models: [beta, gamma], simulator: {{replicas: 1, profile: instant}}}}
payloadProcessor:
  config:
    plugins:
    - {{type: model-selector}}
    - {{type: model-group-name-filter}}
    - {{type: cost-scorer}}
    - {{type: session-affinity}}
    - {{type: model-config-datasource, parameters: {{modelsPath: {models}}}}}
    - {{type: request-metadata-extractor}}
    - {{type: ttft-percentile-extractor}}
    - {{type: body-field-to-header, parameters: {{fieldName: model, headerName: X-Gateway-Model-Name}}}}
    - {{type: model-name-to-header}}
    profiles:
    - name: default
      plugins:
        request:
        - {{pluginRef: model-selector}}
        - {{pluginRef: model-group-name-filter}}
        - {{pluginRef: cost-scorer, weight: 1}}
        - {{pluginRef: session-affinity, weight: 5}}
        - {{pluginRef: body-field-to-header}}
        response: [{{pluginRef: session-affinity}}, {{pluginRef: model-name-to-header}}]
    datalayer:
      datasources: [{{pluginRef: model-config-datasource}}]
      extractors: [{{pluginRef: request-metadata-extractor}}, {{pluginRef: ttft-percentile-extractor}}]
"""
MODELS: dict[str, Any] = {
    "models": [
        {"name": "alpha", "pricing": {"input_per_million": 1}},
        {"name": "beta", "pricing": {"input_per_million": 3}},
        {"name": "gamma", "pricing": {"input_per_million": 9}},
    ],
    "groups": [{"name": "wise", "models": ["beta", "gamma"]}],
}


async def ask(
    gateway: Gateway, session: aiohttp.ClientSession, model: str, **headers: str
) -> tuple[int, dict[str, Any], Any]:
    """Status, body and headers of an answer."""
    body = {"model": model, "prompt": "hello", "max_tokens": 4}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.post(f"{gateway.plan.url}/v1/completions", json=body, headers=sent) as answer:
        return answer.status, json.loads(await answer.read()), answer.headers


async def test_models_are_chosen_before_routing(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps(MODELS))
    async with (
        started_gateway(CONFIG.format(models=file), tmp_path) as gateway,
        aiohttp.ClientSession() as session,
    ):
        status, body, headers = await ask(gateway, session, "auto")
        assert (status, body["model"], headers["x-gateway-model-name"]) == (200, "alpha", "alpha")
        status, body, headers = await ask(gateway, session, "auto/wise")
        assert (status, body["model"]) == (200, "beta")
        kept = headers["x-session-id"]
        status, body, headers = await ask(gateway, session, "auto", x_session_id=kept)
        assert (status, body["model"], headers["x-session-id"]) == (200, "beta", kept)
        status, body, _ = await ask(gateway, session, "auto/none")
        assert (status, body["error"]["code"]) == (429, "no_model_candidates")
        assert gateway.plan.processor is not None
        url = f"http://127.0.0.1:{gateway.plan.processor.metrics_port}"
        async with session.get(f"{url}/metrics") as answer:
            page = await answer.text()
        assert 'ipp_request_ttft_seconds_count{model="alpha"} 1\n' in page
        assert 'ipp_request_ttft_seconds_count{model="beta"} 2\n' in page
        async with session.get(f"{url}/debug/plugins/state") as answer:
            state = json.dumps(await answer.json())
        assert '"totalModels": 3' in state

        file.write_text(json.dumps({"models": MODELS["models"][1:2]}))
        async with asyncio.timeout(PATIENCE_S):
            while (await ask(gateway, session, "auto"))[1]["model"] != "beta":  # noqa: ASYNC110 - a followed file
                await asyncio.sleep(0.2)
        assert (await ask(gateway, session, "alpha"))[0] == 429
