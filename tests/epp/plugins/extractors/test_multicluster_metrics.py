"""Averages of a pool out of its picker's metrics."""

import pytest

from dataplane.errors import ConfigError
from epp.interfaces.attributes import POOL_KV_CACHE_UTILIZATION, POOL_QUEUE_SIZE
from epp.interfaces.data_layer import Extractor, Measurements
from epp.plugins.extractors.multicluster_metrics import MulticlusterMetricsExtractor
from epp.plugins.sources.multicluster_metrics import MulticlusterMetricsSource
from tests.support.pool import make_plugin, make_table

KV = POOL_KV_CACHE_UTILIZATION.by("multicluster-metrics-extractor")
QUEUE = POOL_QUEUE_SIZE.by("multicluster-metrics-extractor")


def read(page: bytes, **parameters: str) -> Measurements:
    plugin = make_plugin(MulticlusterMetricsExtractor, None, parameters)
    found: Measurements = plugin.reader(make_table(1).all().endpoint(0))(page)
    return found


def test_the_gauges_of_a_picker_are_read():
    page = (
        b'llm_d_epp_average_queue_size{name="p"} 2.5\nllm_d_epp_average_kv_cache_utilization{name="p"} 0.25\n'
    )
    assert read(page) == Measurements(attributes={KV: 0.25, QUEUE: 2.5})


def test_other_gauges_can_be_named():
    page = b'q{name="a"} 1\nq{name="b"} 2\nk 0.75\n'
    found = read(page, queueSizeMetric="q{name=b}", kvCacheUtilizationMetric="k")
    assert found == Measurements(attributes={KV: 0.75, QUEUE: 2.0})


@pytest.mark.parametrize("value", [b"-1", b"NaN", b"+Inf", b"many"])
def test_what_is_absent_or_cannot_be_true_is_taken_away(value: bytes):
    found = read(b"llm_d_epp_average_queue_size " + value + b"\n")
    assert found.attributes == {KV: None, QUEUE: None}
    assert found.missing == {
        str(KV): "llm_d_epp_average_kv_cache_utilization",
        str(QUEUE): "llm_d_epp_average_queue_size",
    }


def test_a_metric_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError, match=r"queueSizeMetric: 'q{' is not a metric"):
        read(b"", queueSizeMetric="q{")


def test_it_reads_what_its_source_delivers():
    plugin = make_plugin(MulticlusterMetricsExtractor)
    assert isinstance(plugin, Extractor)
    assert plugin.expects == MulticlusterMetricsSource.payload
    assert list(plugin.produces) == [KV, QUEUE]
