"""``expected-wait-scorer``: tokens ahead and of the answer, by the speed of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.extproc.exchange import Ending
from tests.support.processors import Rig, pipeline_of
from tests.support.served_models import model_of, running, selecting, write_models

TYPE = "expected-wait-scorer"
EXTRACTOR = "request-metadata-extractor"


def config_of(path: Path, *layer: str) -> dict[str, Any]:
    models = write_models(path / "m.json", [{"name": "a"}, {"name": "b"}], [])
    return selecting(models, "model-group-name-filter", TYPE, weights={TYPE: 1}, extractors=layer)


def exchange(rig: Rig, model: str, tokens: int | None, seconds: float) -> None:
    rig.ask({"model": model, "max_tokens": 1})
    rig.clock.advance(seconds)
    rig.answer()
    usage = {"prompt_tokens": 1} | ({} if tokens is None else {"completion_tokens": tokens})
    rig.exchange.on_response_chunk(json.dumps({"usage": usage}).encode(), True)
    rig.exchange.on_end(Ending.NATURAL)


def chosen(rig: Rig, **fields: Any) -> str:
    """The model of a request that stays under way."""
    return model_of(rig.ask({"model": "auto", **fields}))


async def test_a_faster_model_takes_more(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, EXTRACTOR)) as rig:
        exchange(rig, "a", 950, 1.0)  # 950 tokens a second
        exchange(rig, "b", 100, 1.0)  # 100
        assert [chosen(rig, max_tokens=400) for _ in range(10)] == ["a"] * 9 + ["b"]


async def test_a_request_that_says_no_limit_counts_as_an_average_answer(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, EXTRACTOR)) as rig:
        exchange(rig, "a", 900, 9.0)
        exchange(rig, "b", 100, 0.5)  # twice as fast, and shorter
        assert [chosen(rig) for _ in range(19)] == ["b"] * 17 + ["a", "b"]


async def test_an_unknown_model_is_tried_by_one_request_at_a_time(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, EXTRACTOR)) as rig:
        exchange(rig, "a", 100, 1.0)
        exchange(rig, "b", None, 1.0)
        assert [chosen(rig, max_tokens=10) for _ in range(3)] == ["b", "a", "a"]


async def test_what_was_long_ago_counts_less(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, EXTRACTOR)) as rig:
        exchange(rig, "a", 100, 1.0)
        rig.clock.advance(299)
        exchange(rig, "a", 100, 1.0)
        (speed,) = rig.pipeline.instances[EXTRACTOR].dump_state()["speeds"]
        assert speed == {
            "model": "a",
            "averageTtft": None,
            "tokensPerSecond": 100.0,
            "tokensPerAnswer": 100.0,
        }
        rig.clock.advance(298)
        exchange(rig, "a", 700, 2.0)  # 700 and half of 150 tokens, in 2 and half of 1.5 seconds
        (speed,) = rig.pipeline.instances[EXTRACTOR].dump_state()["speeds"]
        assert speed["tokensPerSecond"] == pytest.approx(775 / 2.75)
        assert speed["tokensPerAnswer"] == pytest.approx(775 / 1.75)


def test_it_needs_somebody_who_counts(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config_of(tmp_path))
    assert [str(error) for error in caught.value.errors] == [
        f"plugins[2]: '{TYPE}' needs {what}, which nothing in datalayer provides; list a {EXTRACTOR} there"
        for what in ("the requests in flight of each model", "how fast each model answers")
    ]
