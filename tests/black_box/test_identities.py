"""Whose request it is, seen from outside: objectives, fairness ids, request ids, and which name counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.black_box import (
    Pod,
    Site,
    destination,
    removed_headers,
    request_body,
    request_headers,
    set_headers,
)

pytestmark = pytest.mark.integration

COMPLETION = {"model": "m", "prompt": "test"}
OBJECTIVE, OLD_OBJECTIVE = "x-llm-d-inference-objective", "x-gateway-inference-objective"
FAIRNESS, OLD_FAIRNESS = "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"
TOTAL = "llm_d_epp_request_total"

OPAQUE = """
plugins:
- {type: passthrough-parser}
- {type: queue-scorer}
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
"""
AGENTS = """
plugins:
- {type: agent-identity}
- {type: queue-scorer}
"""


def objectives(folder: Path, **priorities: int) -> list[str]:
    """The flags that have the picker read objectives of these priorities."""
    path = folder / "objects.yaml"
    documents = [
        {
            "apiVersion": "llm-d.ai/v1alpha2",
            "kind": "InferenceObjective",
            "metadata": {"name": name},
            "spec": {"poolRef": {"name": "pool"}, "priority": priority},
        }
        for name, priority in priorities.items()
    ]
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    return ["--objects-file", str(path)]


async def test_an_opaque_request_has_the_priority_of_its_objective(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), config=OPAQUE, flags=objectives(tmp_path, batch=-2)) as site:
        await site.served(b"passthrough-parser", (OBJECTIVE, "batch"))
        assert await site.sample(TOTAL, priority="-2", model_name="", target_model_name="") == 1


async def test_an_unknown_objective_has_no_priority_and_the_current_name_of_a_header_counts(
    tmp_path: Path,
) -> None:
    async with Site(tmp_path, Pod(), flags=objectives(tmp_path, gold=7, lead=3)) as site:
        await site.served(COMPLETION, (OBJECTIVE, "nobody"))
        assert await site.sample(TOTAL, priority="0") == 1
        await site.served(COMPLETION, (OLD_OBJECTIVE, "lead"))
        assert await site.sample(TOTAL, priority="3") == 1
        await site.served(COMPLETION, (OLD_OBJECTIVE, "lead"), (OBJECTIVE, "gold"))
        assert await site.sample(TOTAL, priority="7") == 1
        (answer, *_) = await site.ask(COMPLETION, (OLD_OBJECTIVE, "lead"), (OBJECTIVE, "gold"))
        assert removed_headers(answer) == {OLD_OBJECTIVE, OBJECTIVE}


async def test_the_fairness_id_is_the_callers_else_the_agents_else_the_default(tmp_path: Path) -> None:
    flags = ["--allow-experimental-plugins"]
    async with Site(tmp_path, Pod(), config=AGENTS, flags=flags) as site:
        agent = ("x-claude-code-session-id", "agent-1")
        await site.served(COMPLETION)
        assert await site.sample(TOTAL, fairness_id="default-flow") == 1
        await site.served(COMPLETION, agent)
        assert await site.sample(TOTAL, fairness_id="agent-1") == 1
        await site.served(COMPLETION, agent, (OLD_FAIRNESS, "old-name"))
        assert await site.sample(TOTAL, fairness_id="old-name") == 1
        await site.served(COMPLETION, agent, (OLD_FAIRNESS, "old-name"), (FAIRNESS, "tenant"))
        assert await site.sample(TOTAL, fairness_id="tenant") == 1


async def test_a_request_without_an_id_is_sent_on_with_one(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        (named, *_) = await site.ask(COMPLETION)
        assert "x-request-id" not in set_headers(named)
        head = request_headers()
        del head.request_headers.headers.headers[-1]
        (unnamed, *_) = await site.converse(head, request_body(COMPLETION, end=True))
        made_up = set_headers(unnamed)["x-request-id"]
        assert len(made_up) == 36
        shown = json.loads(await site.page("/debug/decisions"))["decisions"]
        assert [decision["requestId"] for decision in shown] == [made_up, "r1"]


async def test_the_proxy_is_told_every_candidates_score_when_that_is_wanted(tmp_path: Path) -> None:
    pods = (Pod(0), Pod(10), Pod(4))
    config = "plugins: [{type: queue-scorer}]\n"
    async with Site(tmp_path, *pods, config=config, flags=["--emit-endpoint-scores"]) as site:
        (answer, *_) = await site.ask(COMPLETION, subset=[site.key(0), site.key(1), site.key(2)])
        assert destination(answer) == site.key(0)
        told = dict(answer.dynamic_metadata["envoy.lb"])["x-gateway-destination-endpoint-scores"]
        assert dict(told) == {site.key(0): 1.0, site.key(1): 0.0, site.key(2): 0.6}
        (answer, *_) = await site.ask(COMPLETION, subset=[site.key(1)])
        told = dict(answer.dynamic_metadata["envoy.lb"])["x-gateway-destination-endpoint-scores"]
        assert list(dict(told)) == [site.key(1)]
