"""probabilistic-admitter: sheds negative priorities the more often, the fuller the pool is."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.plugins.admitters.probabilistic import ProbabilisticAdmitter
from tests.support.pool import make_plugin, make_request, make_table


def request_of(priority: int) -> InferenceRequest:
    request = make_request()
    request.priority = priority
    return request


def denied(table: EndpointTable, priority: int = -1, tries: int = 1000, **parameters: float) -> int:
    """How many of so many requests are denied."""
    admitter = make_plugin(ProbabilisticAdmitter, table, parameters)
    return sum(admitter.admit(request_of(priority), table.all()) is not None for _ in range(tries))


def test_saturation_is_the_mean_of_the_fuller_of_queue_and_cache():
    table = make_table(3, waiting=[5, 1, 0], kv_usage=[0.2, 0.8, 0.4])
    admitter = make_plugin(ProbabilisticAdmitter, table)
    assert admitter.saturation(table.all()) == pytest.approx((1.0 + 1.0 + 0.5) / 3)


def test_a_full_pool_sheds_every_request_of_negative_priority_and_no_other():
    table = make_table(2, waiting=[50, 50])
    assert denied(table, -1) == 1000
    assert denied(table, 0) == 0
    assert denied(table, 7) == 0


def test_an_idle_pool_sheds_nothing():
    assert denied(make_table(2)) == 0
    assert denied(make_table(0)) == 0


def test_the_probability_follows_the_formula():
    table = make_table(1, waiting=[1])
    assert denied(table, tries=10_000) == pytest.approx(0.2**5 * 300 * 10_000, rel=0.1)
    assert denied(table, power=1, k=0.5, tries=10_000) == pytest.approx(1000, rel=0.1)
    assert denied(table, queueDepthThreshold=1) == 1000
    assert denied(table, k=0) == 0


def test_extremes_neither_overflow_nor_fail():
    table = make_table(1, waiting=[1e12])
    assert denied(table, power=100, k=1e9, queueDepthThreshold=1e-9) == 1000


def test_requests_sent_since_the_last_scrape_count():
    table = make_table(1)
    for _ in range(5):
        table.book(table.all().endpoint(0))
    assert denied(table) == 1000


def test_the_reason_says_how_full_the_pool_is():
    table = make_table(1, waiting=[10])
    admitter = make_plugin(ProbabilisticAdmitter, table)
    reason = admitter.admit(request_of(-2), table.all())
    assert reason == "the pool is 200% full, and requests of priority -2 are shed"


def test_it_reads_what_the_engines_report():
    assert list(make_plugin(ProbabilisticAdmitter).consumes) == [ENGINE_METRICS]


def test_impossible_parameters_are_refused_together():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(
            ProbabilisticAdmitter,
            None,
            {"queueDepthThreshold": 0, "kvCacheUtilThreshold": 1.5, "power": 0, "k": -1},
        )
    assert [e.path for e in caught.value.errors] == [
        "parameters.queueDepthThreshold",
        "parameters.kvCacheUtilThreshold",
        "parameters.power",
        "parameters.k",
    ]
