"""``scoring-debug-headers``: clients see how the model was selected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dataplane.extproc.exchange import Ending
from ipp.interfaces.selection import Scored
from ipp.plugins.processors.scoring_debug_headers import described
from tests.support.processors import Rig, headers_of
from tests.support.served_models import running, selecting, write_models

TYPE = "scoring-debug-headers"


def config_of(path: Path, *scorers: str, **parameters: Any) -> dict[str, Any]:
    config = selecting(
        write_models(path / "m.json"),
        "model-group-name-filter",
        *scorers,
        weights=dict.fromkeys(scorers, 2.0),
        response=[TYPE],
        extractors=["ttft-percentile-extractor"],
    )
    config["plugins"].append({"type": TYPE, "parameters": parameters})
    return config


def exchange(rig: Rig, model: str, *headers: tuple[str, str]) -> dict[str, str]:
    rig.ask({"model": model}, *headers)
    rig.clock.advance(0.5)
    found = headers_of(rig.answer())
    rig.exchange.on_response_chunk(b"data", True)
    rig.exchange.on_end(Ending.NATURAL)
    return found


async def test_every_candidate_is_told_with_each_score_the_best_first(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, "cost-scorer")) as rig:
        assert exchange(rig, "auto/fast") == {
            "x-ipp-scorer-model": "small",
            "x-ipp-scores": "small=1.500;cost-scorer=0.750x2, medium=0.500;cost-scorer=0.250x2",
        }
        assert exchange(rig, "large") == {
            "x-ipp-scorer-model": "large",
            "x-ipp-scores": "large=1.000;cost-scorer=0.500x2",
        }


async def test_what_was_known_of_times_is_told(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, "load-aware-ttft-scorer")) as rig:
        first = exchange(rig, "large")
        assert (first["x-ipp-scorer-state"], first["x-ipp-scorer-recentn"]) == ("cold", "0")
        assert "x-ipp-scorer-floor" not in first
        for _ in range(9):
            exchange(rig, "large")
        rig.clock.advance(2)
        last = exchange(rig, "large")
        assert {name.removeprefix("x-ipp-scorer-"): value for name, value in last.items()} == {
            "model": "large",
            "x-ipp-scores": "large=2.000;load-aware-ttft-scorer=1.000x2",
            "state": "trusted",
            "recentn": "10",
            "inflight": "0",
            "floor": "0.500",
            "p50": "0.500",
            "effectivettft": "0.500",
        }


async def test_only_requests_with_the_header_are_told(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, "cost-scorer", whenHeader="X-Debug")) as rig:
        assert exchange(rig, "large") == {}
        assert exchange(rig, "large", ("x-debug", ""))["x-ipp-scorer-model"] == "large"


def test_many_models_are_told_as_far_as_there_is_room() -> None:
    names = [f"model-{at:04}" for at in range(1000)]
    text = described(Scored(names, [], [float(at) for at in range(1000)]))
    assert len(text) <= 4096
    assert text.startswith("model-0999=999.000, model-0998=998.000")
    assert text.count(", ") == 203
