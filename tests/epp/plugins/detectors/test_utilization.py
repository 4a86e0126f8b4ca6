"""utilization-detector: how full the pool is by its reports, and who has room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import EndpointTable
from epp.plugins.detectors.utilization import UtilizationDetector
from tests.support.clock import ManualClock
from tests.support.labelled import names
from tests.support.pool import make_plugin, make_request, make_table


def detector(table: EndpointTable, age: float = 0.0, **parameters: Any) -> UtilizationDetector:
    """A detector that asks when the reports of the table have this age."""
    clock = ManualClock()
    table.updated_at[:] = clock()
    clock.advance(age)
    plugin: UtilizationDetector = make_plugin(UtilizationDetector, table, parameters, clock=clock)
    return plugin


def test_saturation_is_the_mean_of_the_fuller_of_queue_and_cache():
    table = make_table(3, waiting=[5, 0, 10], kv_usage=[0.2, 0.4, 0.8])
    plugin = detector(table)
    assert plugin.saturation_of(table.all()) == pytest.approx((1.0 + 0.5 + 2.0) / 3)
    assert plugin.saturation_of(table.all().where(np.array([False, True, False]))) == 0.5
    assert list(plugin.consumes) == [ENGINE_METRICS]


def test_requests_sent_since_the_report_wait_as_well():
    table = make_table(2)
    for _ in range(5):
        table.book(table.all().endpoints[0])
    assert detector(table).saturation_of(table.all()) == 0.5


def test_nobody_is_full():
    table = make_table(1)
    nobody = table.all().where(np.array([False]))
    assert detector(table).saturation_of(nobody) == 1.0
    assert detector(table).stale_among(nobody) == 0


@pytest.mark.parametrize(("age", "saturation", "stale"), [(0.199, 0.0, 0), (0.201, 1.0, 2)])
def test_old_reports_count_as_full(age: float, saturation: float, stale: int):
    table = make_table(2)
    plugin = detector(table, age)
    assert (plugin.saturation_of(table.all()), plugin.stale_among(table.all())) == (saturation, stale)


def test_who_has_never_reported_is_full():
    table = make_table(2, fresh=False)
    plugin = detector(table)
    assert (plugin.saturation_of(table.all()), plugin.stale_among(table.all())) == (1.0, 2)


@pytest.mark.parametrize(("age", "saturation"), [(0.89, 0.0), (0.91, 1.0)])
def test_a_slow_page_is_given_three_of_its_own_rounds(age: float, saturation: float):
    table = make_table(1)
    for moment in (5.0, 5.3):
        table.begin_scrape(0)
        table.end_scrape(0, moment)
    assert detector(table, age).saturation_of(table.all()) == saturation


def test_a_round_is_known_only_between_reports_without_a_gap():
    table = make_table(1)
    table.end_scrape(0, 5.0)
    assert table.round_s[0] == 5.0
    table.distrust(0)
    table.end_scrape(0, 9.0)
    assert table.round_s[0] == 0.0


def test_filter_keeps_those_below_both_thresholds():
    table = make_table(4, waiting=[4, 5, 0, 0], kv_usage=[0, 0, 0.79, 0.8])
    assert names(detector(table).filter(make_request(), table.all())) == ["e0", "e2"]
    assert names(detector(table, headroom=0.1).filter(make_request(), table.all())) == [
        "e0",
        "e1",
        "e2",
        "e3",
    ]


def test_filter_keeps_everybody_when_nobody_has_room():
    table = make_table(2, waiting=[5, 9])
    assert names(detector(table).filter(make_request(), table.all())) == ["e0", "e1"]


def test_reasons_name_what_is_over():
    table = make_table(2, waiting=[6, 0], kv_usage=[0.9, 0])
    full, other = table.all().endpoints
    plugin = detector(table)
    assert plugin.reason(make_request(), table.all(), full) == "queue 6 >= 5, KV cache 0.9 >= 0.8"
    table.distrust(other.slot)
    assert plugin.reason(make_request(), table.all(), other) == "its last report is too old"


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"queueDepthThreshold": 0}, "queueDepthThreshold"),
        ({"kvCacheUtilThreshold": 1.1}, "kvCacheUtilThreshold"),
        ({"headroom": -0.1}, "headroom"),
        ({"metricsStalenessThreshold": "-1s"}, "metricsStalenessThreshold"),
    ],
)
def test_values_out_of_range_are_refused(parameters: dict[str, Any], path: str):
    with pytest.raises(ConfigErrors, match=path):
        make_plugin(UtilizationDetector, None, parameters)
