"""Scorers, extractors, exact counts of tokens and asked-for schemas, through a real Envoy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.local.gateway import Gateway
from tests.support.gateway import started_gateway
from tests.support.rendering import rendering

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCORERS = (
    "avg-ttft-scorer",
    "queue-ttft-scorer",
    "ttft-aware-scorer",
    "expected-wait-scorer",
    "costguard",
    "pool-load-scorer",
)
CONFIG = """
pools:
  - {{name: a, models: [alpha], simulator: {{replicas: 1, profile: instant}}}}
  - {{name: b, models: [beta], simulator: {{replicas: 1, profile: instant}}}}
payloadProcessor:
  config:
    plugins:
    - {{type: model-selector}}
    - {{type: model-group-name-filter}}
    - {{type: pool-load-filter}}
    - {{type: avg-ttft-scorer}}
    - {{type: queue-ttft-scorer}}
    - {{type: ttft-aware-scorer}}
    - {{type: expected-wait-scorer}}
    - {{type: costguard, parameters: {{epsilon: 0, percentileMarginError: 0.5}}}}
    - {{type: pool-load-scorer}}
    - {{type: model-config-datasource, parameters: {{modelsPath: {models}}}}}
    - {{type: request-metadata-extractor}}
    - {{type: ttft-percentile-extractor}}
    - {{type: model-cost-extractor, parameters: {{flushIntervalDuration: 0s}}}}
    - {{type: inference-token-extractor, parameters: {{namespace: ns}}}}
    - {{type: router-metrics-collector, parameters: {{interval: 200ms}}}}
    - {{type: scoring-debug-headers, parameters: {{whenHeader: x-why}}}}
    - {{type: token-counter, parameters: {{url: "{renderer}"}}}}
    - {{type: guardrails}}
    - {{type: body-field-to-header, parameters: {{fieldName: model, headerName: X-Gateway-Model-Name}}}}
    profiles:
    - name: default
      plugins:
        request:
        - {{pluginRef: model-selector}}
        - {{pluginRef: model-group-name-filter}}
        - {{pluginRef: pool-load-filter}}
        - {{pluginRef: avg-ttft-scorer, weight: 0}}
        - {{pluginRef: queue-ttft-scorer, weight: 0}}
        - {{pluginRef: ttft-aware-scorer, weight: 0}}
        - {{pluginRef: expected-wait-scorer, weight: 0}}
        - {{pluginRef: costguard, weight: 1}}
        - {{pluginRef: pool-load-scorer, weight: 0}}
        - {{pluginRef: token-counter}}
        - {{pluginRef: guardrails}}
        - {{pluginRef: body-field-to-header}}
        response: [{{pluginRef: guardrails}}, {{pluginRef: scoring-debug-headers}}]
    datalayer:
      datasources: [{{pluginRef: model-config-datasource}}]
      collectors: [{{pluginRef: router-metrics-collector}}]
      extractors:
      - {{pluginRef: request-metadata-extractor}}
      - {{pluginRef: ttft-percentile-extractor}}
      - {{pluginRef: model-cost-extractor}}
      - {{pluginRef: inference-token-extractor}}
  policies:
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {{name: limits}}
    spec:
      streams: hold
      rules:
      - {{name: length, type: maxInputTokens, parameters: {{tokens: 600}}}}
      - {{name: shape, type: jsonSchema, stages: [response], parameters: {{fromRequest: true}}}}
"""
MODELS: dict[str, Any] = {
    "models": [
        {"name": "alpha", "pricing": {"input_per_million": 1e6, "output_per_million": 1e6}},
        {"name": "beta", "pricing": {"input_per_million": 3e6, "output_per_million": 3e6}},
    ],
    "groups": [{"name": "wise", "models": ["beta"]}],
}


async def ask(
    gateway: Gateway, session: aiohttp.ClientSession, model: str, *, why: bool = False, **fields: Any
) -> tuple[int, dict[str, Any], Any]:
    """Status, body and headers of an answer."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, **fields}
    url = f"{gateway.plan.url}/v1/chat/completions"
    async with session.post(url, json=body, headers={"x-why": "1"} if why else {}) as answer:
        return answer.status, json.loads(await answer.read()), answer.headers


async def test_what_answers_cost_selects_the_next_model_and_all_of_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps(MODELS))
    async with rendering() as renderer, aiohttp.ClientSession() as session:
        config = CONFIG.format(models=file, renderer=renderer.url)
        async with started_gateway(config, tmp_path) as gateway:
            processor = gateway.plan.processor
            assert processor is not None
            url = f"http://127.0.0.1:{processor.metrics_port}"

            async def page() -> str:
                async with session.get(f"{url}/metrics") as answer:
                    return await answer.text()

            # Each model is seen once; from then on the cheaper one is preferred.
            spent: dict[str, int] = {}
            for model in ("alpha", "auto/wise"):
                status, body, headers = await ask(gateway, session, model)
                assert status == 200
                assert "x-ipp-scores" not in headers
                usage = body["usage"]
                spent[body["model"]] = usage["prompt_tokens"] + usage["completion_tokens"]
            async with asyncio.timeout(20):
                while 'pointsman_ipp_model_cost_dollars_total{model="beta"}' not in await page():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            told = await page()
            assert f'pointsman_ipp_model_cost_dollars_total{{model="alpha"}} {spent["alpha"]}\n' in told
            assert f'pointsman_ipp_model_cost_dollars_total{{model="beta"}} {3 * spent["beta"]}\n' in told
            labels = 'tenant="",workload="",requested_model="auto/wise",serving_model="beta",namespace="ns"'
            assert f"ipp_inference_request_total{{{labels}}} 1\n" in told

            status, body, headers = await ask(gateway, session, "auto", why=True)
            assert (status, body["model"]) == (200, "alpha")
            assert headers["x-ipp-scorer-model"] == "alpha"
            best, second = headers["x-ipp-scores"].split(", ")
            assert best.startswith("alpha=0.731;")
            assert second.startswith("beta=0.269;")
            assert [part.partition("=")[0] for part in best.split(";")[1:]] == list(SCORERS)
            assert headers["x-ipp-scorer-state"] == "cold"

            # Pools tell their load once it is known where.
            assert ";pool-load-scorer=0.500x0" in best
            listed = [
                {**each, "metricsURL": f"http://127.0.0.1:{pool.metrics_port}/metrics"}
                for each, pool in zip(MODELS["models"], gateway.plan.pools, strict=True)
            ]
            file.write_text(json.dumps({**MODELS, "models": listed}))
            async with asyncio.timeout(30):
                while ";pool-load-scorer=1.000x0" not in headers["x-ipp-scores"]:
                    await asyncio.sleep(0.2)
                    _, _, headers = await ask(gateway, session, "auto", why=True)
            assert 'ipp_kv_cache_queue_depth{model="alpha"} 0\n' in await page()

            # Prompts are counted by the server, whatever they look like.
            assert {path for path, _ in renderer.asked} == {"/v1/chat/completions/render"}
            renderer.tokens = 601
            status, body, _ = await ask(gateway, session, "alpha")
            assert (status, body["error"]["code"]) == (400, "guardrail_max_input_tokens")
            renderer.tokens = 600
            assert (await ask(gateway, session, "alpha"))[0] == 200
            counted = f'pointsman_ipp_token_counts_total{{outcome="counted"}} {len(renderer.asked)}\n'
            assert counted in await page()

            # A server that talks where JSON was asked for.
            asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
            status, body, _ = await ask(gateway, session, "alpha", response_format=asked)
            assert (status, body["error"]["code"]) == (200, "guardrail_json_schema")
            assert body["choices"][0]["finish_reason"] == "content_filter"
            request = {"model": "alpha", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            url = f"{gateway.plan.url}/v1/chat/completions"
            for more, is_refused in (({}, False), ({"response_format": asked}, True)):
                async with session.post(url, json={**request, **more}) as answer:
                    text = await answer.text()
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                assert ("guardrail_json_schema" in text) == is_refused
                assert text.endswith("data: [DONE]\n\n")
