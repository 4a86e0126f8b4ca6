"""``avg-ttft-scorer``: the shortest average is best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dataplane.extproc.exchange import Ending
from ipp.interfaces.models import ServedModel
from tests.support.processors import Rig
from tests.support.served_models import running, selecting, write_models

TYPE = "avg-ttft-scorer"
ANY: Any = None
MODELS = [ServedModel(name) for name in ("small", "medium", "large")]


def config_of(path: Path) -> dict[str, Any]:
    return selecting(
        write_models(path / "m.json"),
        "model-name-filter",
        TYPE,
        weights={TYPE: 1},
        extractors=["request-metadata-extractor"],
    )


def exchange(rig: Rig, model: str, seconds: float, status: int = 200) -> None:
    rig.ask({"model": model})
    rig.clock.advance(seconds)
    rig.answer(status=status)
    rig.exchange.on_response_chunk(b"data", False)
    rig.clock.advance(60)
    rig.exchange.on_response_chunk(b"more", True)
    rig.exchange.on_end(Ending.NATURAL)


def scores(rig: Rig) -> list[float]:
    scorer: Any = rig.pipeline.instances[TYPE]
    return list(scorer.score_models(ANY, MODELS))


async def test_averages_move_a_fifth_of_the_way(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        assert scores(rig) == [1.0, 1.0, 1.0]
        exchange(rig, "small", 1.0)
        exchange(rig, "small", 6.0)
        exchange(rig, "small", 0.01, status=503)
        exchange(rig, "large", 0.5)
        assert scores(rig) == [0.0, 1.0, 0.75]
        shown: Any = rig.pipeline.instances["request-metadata-extractor"]
        assert [each["averageTtft"] for each in shown.dump_state()["speeds"]] == [2.0, 0.5]


async def test_nothing_is_measured_that_no_scorer_needs(tmp_path: Path) -> None:
    config = selecting(write_models(tmp_path / "m.json"), extractors=["request-metadata-extractor"])
    async with running(config) as rig:
        assert rig.pipeline.first_byte_extractors == ()
        assert rig.pipeline.usage_extractors == ()
        exchange(rig, "small", 1.0)
        assert not rig.exchange.observes_response_body
