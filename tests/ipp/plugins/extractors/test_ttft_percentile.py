"""``ttft-percentile-extractor``: the time to the first byte of an answer's body, by model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.extproc.exchange import Ending
from dataplane.plugin.heir import bequeath
from ipp.ttft import Limits, Observation, TtftWindow
from tests.support.processors import Rig, pipeline_of
from tests.support.served_models import running, selecting, write_models

TYPE = "ttft-percentile-extractor"


def config_of(path: Path, **parameters: Any) -> dict[str, Any]:
    extractor = {"type": TYPE, "parameters": parameters}
    return selecting(write_models(path / "m.json"), "model-name-filter", extractors=[extractor])


def exchange(rig: Rig, seconds: float, status: int = 200) -> None:
    rig.ask({"model": "small"})
    rig.clock.advance(seconds)
    rig.answer(status=status)
    rig.exchange.on_response_chunk(b"", False)
    rig.exchange.on_response_chunk(b"data", False)
    rig.clock.advance(5)
    rig.exchange.on_response_chunk(b"more", True)
    rig.exchange.on_end(Ending.NATURAL)


def shown(rig: Rig) -> list[dict[str, Any]]:
    return list(rig.pipeline.instances[TYPE].dump_state()["models"])


async def test_the_first_byte_of_the_body_is_measured(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        for seconds in (0.25, 0.5, 0.75):
            exchange(rig, seconds)
        exchange(rig, 0.01, status=429)
        assert shown(rig) == [
            {
                "model": "small",
                "inFlight": 0,
                "observed": 3,
                "recent": 3,
                "floor": 0.25,
                "median": 0.5,
                "in_flight_at_median": 0.0,
                "quarter": 0.25,
                "in_flight_at_quarter": 0.0,
            }
        ]
        assert rig.counted("ipp_request_ttft_seconds_count", model="small") == 3
        assert rig.counted("ipp_request_ttft_seconds_sum", model="small") == 1.5


async def test_an_answer_without_a_body_is_not_observed_and_ends(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as rig:
        rig.ask({"model": "small"})
        assert [(each["inFlight"], each["observed"]) for each in shown(rig)] == [(1, 0)]
        rig.answer(end=True)
        rig.exchange.on_end(Ending.NATURAL)
        rig.clock.advance(2)
        assert [(each["inFlight"], each["observed"]) for each in shown(rig)] == [(0, 0)]


async def test_windows_go_on_over_a_change_of_configuration(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as old, running(config_of(tmp_path)) as new:
        exchange(old, 0.5)
        bequeath(old.pipeline.instances, new.pipeline.instances)
        assert [each["observed"] for each in shown(new)] == [1]


def test_windows_are_bounded_by_number_and_age() -> None:
    window = TtftWindow(
        Limits(max_observation_age=10, max_requests=3, low_load_window_age=100, window_size=5)
    )
    for at in range(8):
        window.observe(Observation(float(at), float(at), at))
    summary = window.summary(8.0)
    assert (summary.observed, summary.recent, summary.floor, summary.median) == (5, 3, 3.0, 6.0)
    assert window.summary(30.0)[:3] == (5, 0, 3.0)
    assert window.summary(200.0)[:3] == (0, 0, 0.0)


def test_the_floor_is_looked_for_anew_at_its_interval() -> None:
    window = TtftWindow(Limits(max_requests=1, floor_interval=60))
    window.observe(Observation(0.0, 9.0, 0))
    assert window.summary(0.0).floor == 9.0
    window.observe(Observation(5.0, 1.0, 0))
    window.observe(Observation(6.0, 8.0, 0))
    assert window.summary(10.0).floor == 8.0
    assert window.summary(70.0).floor == 1.0


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"floorInterval": "0s"}, "floorInterval: must be more than nothing"),
        ({"minRequests": 200}, "minRequests: must not be more than maxRequests"),
        ({"window": 3}, 'window: unknown field (did you mean "windowSize"?)'),
    ],
)
def test_parameters_are_judged(tmp_path: Path, parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config_of(tmp_path, **parameters))
    assert f"plugins[3].parameters.{problem}" in [str(error) for error in caught.value.errors]
