"""``inference-token-extractor``: tokens by who asked, for what, and who answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dataplane.extproc.exchange import Ending
from tests.support.processors import Rig
from tests.support.served_models import running, selecting, write_models

TYPE = "inference-token-extractor"
TENANT = ("x-llm-d-inference-fairness-id", "acme")
NAMES = ("request", "prompt_tokens", "completion_tokens")


def config_of(path: Path, **parameters: Any) -> dict[str, Any]:
    extractor = {"type": TYPE, "parameters": parameters}
    return selecting(write_models(path / "m.json"), "model-group-name-filter", extractors=[extractor])


def exchange(rig: Rig, model: str, usage: Any, *headers: tuple[str, str], status: int = 200) -> None:
    rig.ask({"model": model}, *headers)
    rig.answer(status=status)
    rig.exchange.on_response_chunk(json.dumps({"usage": usage}).encode(), True)
    rig.exchange.on_end(Ending.NATURAL)


def counts(rig: Rig, *values: str) -> list[float]:
    labels = dict(
        zip(("tenant", "workload", "requested_model", "serving_model", "namespace"), values, strict=True)
    )
    return [rig.counted(f"ipp_inference_{name}_total", **labels) for name in NAMES]


async def test_tokens_are_counted_by_tenant_workload_and_models(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, namespace="ns")) as rig:
        batch = ("x-workload-id", "batch")
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        exchange(rig, "auto/wise", usage, TENANT, batch)
        exchange(rig, "auto/wise", usage, TENANT, batch)
        exchange(rig, "small", {"prompt_tokens": 5}, TENANT)
        exchange(rig, "small", None)
        exchange(rig, "small", usage, status=500)
        assert counts(rig, "acme", "batch", "auto/wise", "large", "ns") == [2, 14, 6]
        assert counts(rig, "acme", "", "small", "small", "ns") == [1, 5, 0]
        assert counts(rig, "", "", "small", "small", "ns") == [1, 0, 0]


async def test_the_namespace_is_that_of_the_process_unless_one_is_given(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("NAMESPACE", "prod")
    async with running(config_of(tmp_path, workloadHeader="")) as rig:
        exchange(rig, "small", {"prompt_tokens": 5}, ("x-workload-id", "batch"))
        assert counts(rig, "", "", "small", "small", "prod") == [1, 5, 0]


async def test_clients_cannot_make_it_grow(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, namespace="ns")) as rig:
        for at in range(1005):
            exchange(rig, "small", {"prompt_tokens": 1}, ("x-workload-id", f"w{at}"))
        assert counts(rig, "", "w999", "small", "small", "ns") == [1, 1, 0]
        assert counts(rig, "", "w1004", "small", "small", "ns") == [0, 0, 0]
        assert counts(rig, "", "other", "small", "small", "ns")[1] == 5
