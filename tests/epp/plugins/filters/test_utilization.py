"""utilization-filter: endpoints within all limits stay."""

from typing import Any

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.base import Stability
from epp.interfaces.attributes import ENGINE_METRICS, INFLIGHT_LOAD, InflightLoad
from epp.interfaces.endpoint import EndpointTable
from epp.plugins.filters.utilization import UtilizationFilter
from tests.support.labelled import names
from tests.support.pool import add_endpoint, make_plugin, make_request, make_table


def parameters(*limits: tuple[str, float], **others: Any) -> dict[str, Any]:
    return {"conditions": [{"metric": metric, "maxValue": value} for metric, value in limits], **others}


def left(table: EndpointTable, *limits: tuple[str, float], **others: Any) -> list[str]:
    plugin = make_plugin(UtilizationFilter, table, parameters(*limits, **others))
    return names(plugin.filter(make_request(), table.all()))


@pytest.mark.parametrize(
    ("metric", "column"),
    [("running-requests", "running"), ("waiting-queue", "waiting"), ("kv-cache-utilization", "kv_usage")],
)
def test_reported_values_up_to_the_limit_are_kept(metric: str, column: str):
    table = make_table(3, **{column: [0.25, 0.5, 0.75]})
    assert left(table, (metric, 0.5)) == ["e0", "e1"]
    assert left(table, (metric, 0.75)) == ["e0", "e1", "e2"]


def test_active_requests_are_those_of_the_named_producer():
    table, request = make_table(3), make_request()
    load = InflightLoad(table.all(), np.array([2.0, 3.0, 4.0]), np.zeros(3))
    request.put(INFLIGHT_LOAD, load)
    plugin = make_plugin(UtilizationFilter, table, parameters(("active-requests", 3)))
    assert names(plugin.filter(request, table.all())) == ["e0", "e1"]
    narrowed = table.all().where(np.array([False, True, True]))
    assert names(plugin.filter(request, narrowed)) == ["e1"]
    other = make_plugin(
        UtilizationFilter, table, parameters(("active-requests", 3), inFlightLoadProducerName="mine")
    )
    assert list(other.consumes) == [INFLIGHT_LOAD.by("mine")]
    assert names(other.filter(request, table.all())) == ["e0", "e1", "e2"]


def test_all_limits_must_be_kept():
    table = make_table(4, waiting=[0, 9, 0, 9], kv_usage=[0.1, 0.1, 0.9, 0.9])
    assert left(table, ("waiting-queue", 5), ("kv-cache-utilization", 0.8)) == ["e0"]


def test_of_two_limits_of_one_metric_the_smaller_counts():
    table = make_table(3, waiting=[1, 2, 3])
    assert left(table, ("waiting-queue", 1), ("waiting-queue", 2)) == ["e0"]
    assert left(table, ("waiting-queue", 2), ("waiting-queue", 1)) == ["e0"]


def test_an_endpoint_that_has_not_reported_is_kept():
    table = make_table(2, waiting=[9, 9])
    add_endpoint(table, "new", fresh=False)
    assert left(table, ("waiting-queue", 0), ("kv-cache-utilization", 0)) == ["new"]


def test_nobody_is_left_when_all_are_above_a_limit_unless_told_otherwise():
    table = make_table(2, waiting=[6, 7])
    assert left(table, ("waiting-queue", 5)) == []
    assert left(table, ("waiting-queue", 5), fallbackOnEmpty=True) == ["e0", "e1"]
    assert left(table, ("waiting-queue", 6), fallbackOnEmpty=True) == ["e0"]
    assert left(make_table(0), ("waiting-queue", 5)) == []
    assert left(make_table(0), ("waiting-queue", 5), fallbackOnEmpty=True) == []


def test_only_the_data_that_is_compared_is_consumed():
    def consumed(*limits: tuple[str, float]) -> list[Any]:
        return list(make_plugin(UtilizationFilter, None, parameters(*limits)).consumes)

    assert consumed(("active-requests", 1)) == [INFLIGHT_LOAD]
    assert consumed(("waiting-queue", 1)) == [ENGINE_METRICS]
    assert consumed(("waiting-queue", 1), ("active-requests", 1)) == [INFLIGHT_LOAD, ENGINE_METRICS]


def test_a_limit_of_a_share_that_limits_nothing_is_pointed_out():
    def warnings(limit: float) -> list[str]:
        given: list[str] = make_plugin(
            UtilizationFilter, None, parameters(("kv-cache-utilization", limit))
        ).warnings
        return given

    assert warnings(0.8) == []
    assert warnings(80) == [
        "kv-cache-utilization is a share from 0 to 1: a maxValue of 1 or more limits nothing"
    ]


def test_the_plugin_is_experimental():
    assert UtilizationFilter.info.stability is Stability.ALPHA


METRIC_NAMES = (
    "conditions[0].metric: must be one of active-requests, running-requests, waiting-queue, "
    "kv-cache-utilization; got 'queue'"
)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "conditions: is required"),
        ({"conditions": []}, "conditions: at least one condition is needed"),
        (parameters(("queue", 5)), METRIC_NAMES),
        (parameters(("waiting-queue", -1)), "conditions[0].maxValue: expected float >= 0.0"),
        (parameters(("waiting-queue", float("nan"))), "conditions[0].maxValue: expected float >= 0.0"),
        (parameters(("waiting-queue", float("inf"))), "conditions[0].maxValue: must be a finite number"),
        ({"conditions": [{"metric": "waiting-queue"}]}, "conditions[0].maxValue: is required"),
    ],
)
def test_impossible_parameters_are_refused(given: dict[str, Any] | None, problem: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(UtilizationFilter, None, given)
    assert f"parameters.{problem}" in [str(error) for error in caught.value.errors]
