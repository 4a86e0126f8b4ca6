"""latency-slo-admitter: sheds what no endpoint is predicted to answer in time."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ResourceExhaustedError
from dataplane.headers import Headers
from epp.interfaces.attributes import LATENCY_PREDICTION, LatencyPrediction
from epp.interfaces.endpoint import EndpointTable
from epp.objects.model import InferenceObjective
from epp.objects.snapshot import PoolObjects
from epp.plugins.admitters.latency_slo import LatencySloAdmitter
from tests.support.pool import make_plugin, make_request, make_table
from tests.support.request_path import Rig, graph_of

TTFT = ("x-llm-d-slo-ttft-ms", "200")


def busy_table(count: int = 2) -> EndpointTable:
    return make_table(count, running=[3.0] * count, kv_usage=[0.5] * count)


def prediction(table: EndpointTable, *valid: bool | None) -> LatencyPrediction:
    """Whether each endpoint is predicted to answer in time; None = no prediction."""
    known = np.array([np.nan if each is None else 100.0 for each in valid])
    return LatencyPrediction(
        table.all(), known, known, known, known, np.array([bool(each) for each in valid])
    )


def denial(
    table: EndpointTable,
    *valid: bool | None,
    priority: int = -1,
    headers: tuple[tuple[str, str], ...] = (TTFT,),
) -> str | None:
    request = make_request()
    request.priority = priority
    request.headers = Headers.of(headers)
    if valid:
        request.put(LATENCY_PREDICTION, prediction(table, *valid))
    answer: str | None = make_plugin(LatencySloAdmitter, table).admit(request, table.all())
    return answer


def test_a_request_that_everybody_would_miss_is_denied():
    assert denial(busy_table(), False, False) == (
        "no endpoint is predicted to meet its latency objectives, and requests of priority -1 are shed"
    )
    assert denial(busy_table(), False, None) is not None
    assert denial(busy_table(), False, False, headers=(("x-slo-tpot-ms", "0.5"),)) is not None


def test_one_endpoint_that_meets_the_objectives_is_enough():
    assert denial(busy_table(), False, True) is None


def test_without_predictions_nobody_is_denied():
    assert denial(busy_table()) is None
    assert denial(busy_table(), None, None) is None


@pytest.mark.parametrize("priority", [0, 5])
def test_only_negative_priorities_are_shed(priority: int):
    assert denial(busy_table(), False, False, priority=priority) is None


@pytest.mark.parametrize("value", ["0", "-5", "soon", "nan", "inf", ""])
def test_only_requests_with_an_objective_are_shed(value: str):
    assert denial(busy_table(), False, False, headers=((TTFT[0], value),)) is None
    assert denial(busy_table(), False, False, headers=()) is None


def test_an_idle_or_cold_endpoint_is_given_a_try():
    assert denial(make_table(2, running=[3, 0], kv_usage=[0.5, 0.5]), False, False) is None
    assert denial(make_table(2, running=[3, 3], kv_usage=[0.5, 0.01]), False, False) is None


def test_requests_on_their_way_make_an_endpoint_busy():
    table = make_table(2, running=[3, 0], kv_usage=[0.5, 0.5])
    table.book(table.all().endpoint(1))
    assert denial(table, False, False) is not None


def test_silence_is_no_idleness():
    table = make_table(2, fresh=False)
    assert denial(table, False, False) is not None


ROOM = "- {type: utilization-detector, parameters: {queueDepthThreshold: 1000, kvCacheUtilThreshold: 1}}\n"


def test_a_denial_is_429():
    rig = Rig("- type: latency-slo-admitter\n- type: pessimist\n" + ROOM, busy_table())
    rig.objects.current = PoolObjects([InferenceObjective("batch", -1)])
    batch = ("x-llm-d-inference-objective", "batch")
    with pytest.raises(ResourceExhaustedError, match="request cannot be admitted: no endpoint is predicted"):
        rig.ask(TTFT, batch)
    assert rig.table.inflight.sum() == 0
    rig.ask(TTFT)
    rig.ask(batch)
    assert rig.table.inflight.sum() == 2


def test_the_producer_must_be_there_and_is_named():
    with pytest.raises(ConfigErrors) as caught:
        graph_of("- type: latency-slo-admitter\n", make_table(1))
    assert [str(error) for error in caught.value.errors] == [
        (
            "plugins: 'latency-slo-admitter' reads LatencyPredictionInfo of 'predicted-latency-producer', "
            "and this build predicts no latencies; remove 'latency-slo-admitter'"
        )
    ]
    with pytest.raises(ConfigErrors, match="LatencyPredictionInfo of 'mine', which is not configured"):
        graph_of(
            "- {type: latency-slo-admitter, parameters: {latencyPredictionInfoProducerName: mine}}\n",
            make_table(1),
        )
