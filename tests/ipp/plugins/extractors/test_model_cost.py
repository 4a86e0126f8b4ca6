"""``model-cost-extractor``: answers cost what their tokens do at the listed prices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dataplane.extproc.exchange import Ending
from dataplane.plugin.heir import bequeath
from tests.support.processors import Rig
from tests.support.served_models import running, selecting, write_models

TYPE = "model-cost-extractor"
JSON = ("content-type", "application/json")
SSE = ("content-type", "text/event-stream; charset=utf-8")
USAGE = {"prompt_tokens": 2_000_000, "completion_tokens": 500_000}


def config_of(path: Path, **parameters: Any) -> dict[str, Any]:
    extractor = {"type": TYPE, "parameters": parameters}
    return selecting(write_models(path / "m.json"), "model-name-filter", extractors=[extractor])


def exchange(rig: Rig, model: str, *chunks: bytes, kind: tuple[str, str] = JSON, status: int = 200) -> None:
    rig.ask({"model": model})
    rig.answer(kind, status=status)
    for at, chunk in enumerate(chunks, 1):
        assert rig.exchange.observes_response_body == (status == 200)
        rig.exchange.on_response_chunk(chunk, at == len(chunks))
    rig.exchange.on_end(Ending.NATURAL)


def answer(usage: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"content": "hi"}}], "usage": usage}).encode()


def shown(rig: Rig) -> list[dict[str, Any]]:
    return list(rig.pipeline.instances[TYPE].dump_state()["models"])


async def test_tokens_cost_their_models_prices(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        exchange(rig, "small", answer(USAGE))
        exchange(rig, "medium", *(bytes([byte]) for byte in answer(USAGE)))
        exchange(rig, "medium", answer({"prompt_tokens": 1_000_000}))
        assert shown(rig) == [
            {"model": "small", "answers": 1, "total": 1.25},
            {"model": "medium", "answers": 2, "total": 4.0},
        ]
        assert rig.counted("pointsman_ipp_model_cost_dollars_total", model="medium") == 4.0
        assert rig.counted("pointsman_ipp_model_costs_unknown_total") == 0


async def test_streams_and_other_apis_are_read(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        chunk = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
        exchange(rig, "small", b'data: {"choices": []}\n\n', chunk, b"data: [DONE]\n\n", kind=SSE)
        rig.ask({"model": "small"}, (":path", "/v1/messages"))
        assert shown(rig) == [{"model": "small", "answers": 1, "total": 1.25}]


async def test_what_nobody_can_price_is_counted_as_unknown(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        exchange(rig, "small", b'data: {"choices": []}\n\n', b"data: [DONE]\n\n", kind=SSE)
        exchange(rig, "small", answer(None))
        exchange(rig, "small", answer({"total_tokens": 5}))
        exchange(rig, "small", answer(USAGE), status=500)
        assert shown(rig) == []
        assert rig.counted("pointsman_ipp_model_costs_unknown_total") == 3


async def test_windows_end_and_go_on_over_a_change_of_configuration(tmp_path: Path) -> None:
    config = config_of(tmp_path, windowDuration="10s")
    async with running(config) as rig, running(config) as heir:
        exchange(rig, "small", answer(USAGE))
        bequeath(rig.pipeline.instances, heir.pipeline.instances)
        assert shown(heir) == [{"model": "small", "answers": 1, "total": 1.25}]
        rig.clock.advance(10)
        assert shown(rig) == []
        exchange(rig, "small", answer({"prompt_tokens": 1_000_000}))
        assert shown(rig) == [{"model": "small", "answers": 1, "total": 0.5}]
        # The metric is of all times.
        assert rig.counted("pointsman_ipp_model_cost_dollars_total", model="small") == 1.75


async def test_prices_follow_the_list(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        write_models(
            tmp_path / "m.json",
            [{"name": "small", "pricing": {"input_per_million": 8}}, {"name": "gratis"}],
            [],
        )
        source: Any = rig.pipeline.instances["model-config-datasource"]
        assert await source.read_source() == []
        exchange(rig, "small", answer(USAGE))
        exchange(rig, "gratis", answer(USAGE))
        assert [each["total"] for each in shown(rig)] == [16.0, 0.0]
