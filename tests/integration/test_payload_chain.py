"""A processor and two pickers under a thousand requests of every kind: no wrong pool, and no byte lost."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import envoy_counters
from tests.support.guarded import JSON, Write, chunked, event, guarded_gateway, whole

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

CONFIG = """
pools:
  - {name: a, models: [alpha], simulator: {replicas: 1, profile: instant}}
  - {name: b, models: [beta], simulator: {replicas: 1, profile: instant}}
payloadProcessor:
  config:
    plugins:
    - {type: body-field-to-header, parameters: {fieldName: model, headerName: X-Gateway-Model-Name}}
    - type: base-model-to-header
      parameters:
        mappings:
        - {baseModel: alpha, adapters: [alpha-lora]}
        - {baseModel: beta, adapters: [beta-lora]}
    - {type: guardrails}
    - {type: model-name-to-header}
    profiles:
    - name: default
      plugins:
        request:
        - {pluginRef: body-field-to-header}
        - {pluginRef: base-model-to-header}
        - {pluginRef: guardrails}
        response: [{pluginRef: guardrails}, {pluginRef: model-name-to-header}]
  policies:
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {name: house}
    spec:
      models: [beta]
      rules:
      - {name: words, type: keywords, stages: [request, response, stream], parameters: {words: [forbidden]}}
"""
REQUESTS = 1000
POOL_OF = {"alpha": "a", "alpha-lora": "a", "beta": "b", "beta-lora": "b"}
DONE = b"data: [DONE]\n\n"


def pieces(draw: random.Random, body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        size = draw.choice((1, 7, 100, 5000))
        yield body[at : at + size]
        at += size


def answer_of(draw: random.Random, pool: str, text: str) -> tuple[Write, bytes]:
    """An answer of some kind, and all of its bytes."""
    call = {"index": 0, "function": {"name": "look", "arguments": json.dumps({"q": text[:300]})}}
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    kind = draw.choice(["whole", "stream", "calls", "chunks", "compressed" if pool == "a" else "whole"])
    if kind == "whole":
        return whole(body), body
    if kind == "chunks":
        return chunked(list(pieces(draw, body)), JSON), body
    if kind == "compressed":
        packed = gzip.compress(body)
        return whole(packed, JSON, "content-encoding: gzip"), packed
    texts = [text[at : at + 900] for at in range(0, len(text), 900)]
    if kind == "stream":
        stream = b"".join([*map(event, texts), DONE])
    else:
        calls = (
            {"tool_calls": [{"index": 0, "function": {"arguments": json.dumps(each)}}]} for each in texts
        )
        stream = b"".join([*(event("", delta=each) for each in calls), DONE])
    return chunked(list(pieces(draw, stream))), stream


async def test_a_thousand_exchanges_of_every_kind_reach_their_pools_and_come_back_whole(
    tmp_path: Path,
) -> None:
    draw = random.Random(17)
    sent: list[tuple[str, bytes, Write, bytes]] = []
    for index in range(REQUESTS):
        model = draw.choice(list(POOL_OF))
        size = 300_000 if index % 100 == 99 else draw.choice((0, 10, 3000, 20_000))
        body = {
            "model": model,
            "messages": [
                {"role": "user", "content": "h\u00e9llo \U0001f600 " + draw.randbytes(size // 2).hex()}
            ],
            "stream": draw.random() < 0.5,
        }
        raw = json.dumps(body, ensure_ascii=draw.random() < 0.5, indent=draw.choice((None, 1))).encode()
        length = 300_000 if index % 100 == 49 else draw.choice((1, 50, 2000, 10_000))
        sent.append((model, raw, *answer_of(draw, POOL_OF[model], draw.randbytes(length // 2).hex())))
    async with guarded_gateway(CONFIG, tmp_path) as guarded:
        guarded.is_patient = True
        answers = await asyncio.gather(*(guarded.ask(raw, answer) for _, raw, answer, _ in sent))
        refused = [each.body for each in answers if each.status != 200]
        assert refused == []
        for (model, raw, _, wanted), got in zip(sent, answers, strict=True):
            assert got.pool == POOL_OF[model]
            assert [seen.body for seen in got.seen] == [raw]
            assert (got.body, got.is_broken) == (wanted, False)
            assert got.headers["x-gateway-model-name"] == model
            assert got.seen[0].headers["x-gateway-base-model-name"] == {"a": "alpha", "b": "beta"}[got.pool]
        assert guarded.gateway.children["ipp"].restarts == 0
        counters = await envoy_counters(guarded.gateway, guarded.session, "ext_proc")
        for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
            assert sum(value for name, value in counters.items() if name.endswith(trouble)) == 0, trouble
