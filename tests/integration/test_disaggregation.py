"""Disaggregated serving through a real Envoy: what the server that decodes is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.simulated import POD, running

pytestmark = pytest.mark.integration

CONFIG = """
pools:
  - name: pool
    models: [tiny]
    simulator: {replicas: 2, profile: instant}
    picker:
      config:
        plugins:
        - {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
        - {type: always-disagg-pd-decider}
        - {type: decode-filter}
        - {type: prefill-filter}
        schedulingProfiles:
        - {name: decode, plugins: [{pluginRef: decode-filter}]}
        - {name: prefill, plugins: [{pluginRef: prefill-filter}]}
"""
TEN_TOKENS = "0123456789" * 4
"""At four bytes each; a block holds sixteen."""


async def test_a_prompt_of_ten_tokens_is_prefilled_apart_when_that_is_always_wanted(tmp_path: Path) -> None:
    async with running(CONFIG, tmp_path) as rig:
        documents = rig.listed()
        for document, role in zip(documents, ("decode", "prefill"), strict=True):
            document["labels"]["llm-d.ai/role"] = role
        await rig.list_endpoints(documents)
        decode, prefill = documents
        body = {"model": "tiny", "prompt": TEN_TOKENS, "max_tokens": 1}
        for _ in range(2):
            async with rig.session.post(
                f"{rig.plan.url}/v1/completions", json=body, headers={"x-echo-digest": "1"}
            ) as answer:
                assert (await answer.json())["usage"]["prompt_tokens"] == 10
                assert answer.headers[POD] == decode["name"]
                received = dict(json.loads(answer.headers["x-received-headers"]))
            assert received["x-prefiller-host-port"] == f"{prefill['address']}:{prefill['port']}"
