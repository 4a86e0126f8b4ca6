"""concurrency-detector: how full the pool is by what is in flight, and who may have more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import INFLIGHT_LOAD
from epp.plugins.detectors.concurrency import ConcurrencyDetector
from tests.support.labelled import names
from tests.support.pool import make_plugin, make_request, make_table

LOAD: dict[str, list[float]] = {"inflight": [10, 30, 20], "inflight_tokens": [900, 100, 500]}


def detector(**parameters: Any) -> ConcurrencyDetector:
    settings = {"maxConcurrency": 20, "maxTokenConcurrency": 1000, **parameters}
    plugin: ConcurrencyDetector = make_plugin(ConcurrencyDetector, None, settings)
    return plugin


@pytest.mark.parametrize(
    ("mode", "saturation"),
    [("requests", 60 / 60), ("tokens", 1500 / 3000), ("hybrid", (0.9 + 1.5 + 1.0) / 3)],
)
def test_saturation_is_load_over_capacity(mode: str, saturation: float):
    table = make_table(3, **LOAD)
    plugin = detector(concurrencyMode=mode)
    assert plugin.saturation_of(table.all()) == pytest.approx(saturation)
    assert plugin.stale_among(table.all()) == 0


def test_it_reacts_to_a_request_at_once():
    table = make_table(1, fresh=False)
    plugin = detector(maxConcurrency=1)
    assert plugin.saturation_of(table.all()) == 0.0
    booking = table.book(table.all().endpoints[0])
    assert plugin.saturation_of(table.all()) == 1.0
    table.release(booking)
    assert plugin.saturation_of(table.all()) == 0.0


def test_nobody_is_full():
    table = make_table(1)
    assert detector().saturation_of(table.all().where(np.array([False]))) == 1.0


@pytest.mark.parametrize(
    ("parameters", "left"),
    [
        ({}, ["e0"]),
        ({"headroom": 0.1}, ["e0", "e2"]),
        ({"concurrencyMode": "tokens"}, ["e0", "e1", "e2"]),
        ({"maxConcurrency": 10}, []),
    ],
)
def test_filter_drops_those_that_are_full_even_all(parameters: dict[str, Any], left: list[str]):
    table = make_table(3, **LOAD)
    assert names(detector(**parameters).filter(make_request(), table.all())) == left


def test_reason_says_how_full():
    table = make_table(3, **LOAD)
    full = table.all().endpoints[1]
    assert detector().reason(make_request(), table.all(), full) == "150% of its requests in flight"


def test_a_plugin_that_counts_tokens_is_needed_only_for_tokens():
    assert list(detector().consumes) == []
    assert list(detector(concurrencyMode="hybrid").consumes) == [INFLIGHT_LOAD]
    assert list(detector(inFlightLoadProducerName="mine").consumes) == [INFLIGHT_LOAD.by("mine")]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [({"maxConcurrency": 0}, "maxConcurrency"), ({"concurrencyMode": "bytes"}, "concurrencyMode")],
)
def test_values_out_of_range_are_refused(parameters: dict[str, Any], path: str):
    with pytest.raises(ConfigErrors, match=path):
        make_plugin(ConcurrencyDetector, None, parameters)
