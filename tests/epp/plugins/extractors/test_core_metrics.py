"""What each engine's page says, and which mapping an endpoint gets."""

import logging

import msgspec
import pytest

from dataplane.errors import ConfigError
from dataplane.observability.series import ABSENT_PAGES
from dataplane.plugin.base import DataKey, TypedName
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.data_layer import Extractor, Measurements
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.extractors.core_metrics import CoreMetricsExtractor, CoreMetricsExtractorParams

VLLM = (
    b"# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
    b"# TYPE vllm:num_requests_running gauge\n"
    b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
    b"# HELP vllm:num_requests_waiting_by_reason Nothing to do with the next.\n"
    b'vllm:num_requests_waiting_by_reason{reason="capacity"} 77.0\n'
    b'vllm:num_requests_waiting{engine="0",model_name="m"} 4.0\n'
    b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
    b'vllm:cache_config_info{num_gpu_blocks="19208",block_size="16",engine="0"} 1.0\n'
)
LORA = (
    b'vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.7e+09\n'
    b'vllm:lora_requests_info{waiting_lora_adapters="c",running_lora_adapters="a, b",max_lora="4"} 1.8e+09\n'
)
SGLANG = (
    b'sglang:num_running_reqs{model_name="m"} 1\nsglang:num_queue_reqs{model_name="m"} 2\n'
    b'sglang:token_usage{model_name="m"} 0.5\nsglang:cache_config_info{page_size="64",num_pages="2000"} 1\n'
)
TRTLLM = (
    b"trtllm_num_requests_waiting 5\ntrtllm_num_requests_running 6\ntrtllm_kv_cache_utilization 0.75\n"
    b"trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 1234\n"
)
TRITON_TRTLLM = (
    b'nv_trt_llm_request_metrics{model="t",request_type="context",version="1"} 9\n'
    b'nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 7\n'
    b'nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 8\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="t"} 0.125\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="t"} 64\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="t"} 500\n'
)
TRITON = b'nv_inference_exec_count{model="t"} 123456\nnv_inference_pending_request_count{model="t"} 3\n'


def extractor(**params: object) -> CoreMetricsExtractor:
    """A plugin with these parameters, as YAML spells them."""
    decoded = msgspec.convert(params, CoreMetricsExtractorParams)
    return CoreMetricsExtractor(TypedName("core-metrics-extractor", "core"), decoded, Handle(EndpointTable()))


def engine(name: str) -> Endpoint:
    """An endpoint labelled with an engine."""
    return Endpoint(EndpointSpec("a", "default", "10.0.0.1", 8000, {"llm-d.ai/engine-type": name}), 0, 0)


@pytest.mark.parametrize(
    ("name", "page", "expected"),
    [
        ("vllm", VLLM, Measurements(waiting=4, running=3, kv_usage=0.25, block_size=16, num_blocks=19208)),
        ("sglang", SGLANG, Measurements(waiting=2, running=1, kv_usage=0.5, block_size=64, num_blocks=2000)),
        (
            "trtllm-serve",
            TRTLLM,
            Measurements(waiting=5, running=6, kv_usage=0.75, block_size=32, num_blocks=1234),
        ),
        (
            "triton-tensorrt-llm",
            TRITON_TRTLLM,
            Measurements(waiting=8, running=7, kv_usage=0.125, block_size=64, num_blocks=500),
        ),
        ("triton", TRITON, Measurements(waiting=3)),
    ],
)
def test_each_built_in_engine_is_read(name: str, page: bytes, expected: Measurements):
    read = extractor().reader(engine(name))
    assert read(page) == expected
    assert read(page) == expected


def test_an_execution_counter_is_not_taken_for_running_requests():
    assert extractor().reader(engine("triton"))(TRITON).running is None


def test_the_newest_lora_series_names_the_adapters():
    found = extractor().reader(engine("vllm"))(VLLM + LORA)
    assert found.active_models == {"a", "b"}
    assert found.waiting_models == {"c"}
    assert found.max_active_models == 4


def test_adapters_are_forgotten_when_the_server_comes_back_without_them():
    read = extractor().reader(engine("vllm"))
    assert read(VLLM + LORA).active_models == {"a", "b"}
    gone = read(VLLM)
    assert (gone.active_models, gone.waiting_models) == (frozenset(), frozenset())
    assert read(VLLM).active_models is None


def test_adapters_are_noticed_when_they_appear_later():
    read = extractor().reader(engine("vllm"))
    found = [read(VLLM).active_models, *(read(VLLM + LORA).active_models for _ in range(ABSENT_PAGES))]
    assert found == [None] * ABSENT_PAGES + [frozenset({"a", "b"})]


def test_a_lora_series_without_adapters_says_none_are_loaded():
    page = (
        VLLM + b'vllm:lora_requests_info{max_lora="0",running_lora_adapters="",waiting_lora_adapters=""} 1\n'
    )
    found = extractor().reader(engine("vllm"))(page)
    assert (found.active_models, found.max_active_models) == (frozenset(), None)


def test_missing_load_series_are_named_and_the_others_read():
    found = extractor().reader(engine("vllm"))(VLLM.replace(b"vllm:num_requests_waiting{", b"other{"))
    assert found.waiting is None
    assert found.running == 3
    assert found.missing == {"waiting": "vllm:num_requests_waiting"}


@pytest.mark.parametrize("value", [b"-1.0", b"NaN", b"+Inf", b"many"])
def test_a_value_that_cannot_be_true_is_absent(value: bytes):
    found = extractor().reader(engine("vllm"))(VLLM.replace(b"} 4.0", b"} " + value))
    assert (found.waiting, found.missing) == (None, {"waiting": "vllm:num_requests_waiting"})


def test_kv_usage_above_one_is_one():
    assert extractor().reader(engine("vllm"))(VLLM.replace(b"0.25", b"57")).kv_usage == 1.0


@pytest.mark.parametrize("text", ["None", "", "-1", "0", "99999999999", "1.5", "\u0661"])
def test_a_block_count_that_is_none_is_not_reported(text: str):
    found = extractor().reader(engine("vllm"))(VLLM.replace(b"19208", text.encode()))
    assert (found.block_size, found.num_blocks) == (16, None)


def test_the_engine_is_the_label_then_its_legacy_spelling_then_the_default():
    plugin = extractor()
    both = {"llm-d.ai/engine-type": "sglang", "inference.networking.k8s.io/engine-type": "triton"}
    legacy = {"inference.networking.k8s.io/engine-type": "triton"}
    rows = [
        Endpoint(EndpointSpec("a", "default", "10.0.0.1", 8000, labels), 0, 0)
        for labels in (both, legacy, {})
    ]
    pages = SGLANG + TRITON + VLLM
    assert [plugin.reader(row)(pages).waiting for row in rows] == [2, 3, 4]


def test_an_own_label_key_has_no_legacy_spelling():
    plugin = extractor(engineLabelKey="engine", defaultEngine="sglang")
    labels = {"inference.networking.k8s.io/engine-type": "triton", "llm-d.ai/engine-type": "vllm"}
    row = Endpoint(EndpointSpec("a", "default", "10.0.0.1", 8000, labels), 0, 0)
    assert plugin.reader(row)(SGLANG + TRITON + VLLM).waiting == 2


def test_an_unmapped_engine_is_read_as_the_default_and_said_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    plugin = extractor()
    for _ in range(2):
        assert plugin.reader(engine("vlm"))(VLLM).waiting == 4
    (record,) = caplog.records
    assert record.getMessage() == (
        "endpoint default/a: no mapping for engine 'vlm' (did you mean \"vllm\"?); it is read as vllm. "
        "Add it to engineConfigs of core (core-metrics-extractor)"
    )


def test_own_mappings_add_to_and_replace_the_built_in_ones():
    plugin = extractor(
        defaultEngine="mine",
        engineConfigs=[
            {
                "name": "mine",
                "queuedRequestsSpec": "q{kind=a}",
                "cacheInfoSpec": "c",
                "cacheBlockSizeLabelName": "bs",
            },
            {"name": "vllm", "queuedRequestsSpec": "w", "loraSpec": "lora"},
        ],
    )
    page = b'q{kind="b"} 1\nq{kind="a"} 2\nc{bs="8"} 1\nw 3\n'
    assert plugin.reader(engine("mine"))(page) == Measurements(waiting=2, block_size=8)
    assert plugin.reader(engine("vllm"))(page) == Measurements(waiting=3)


def custom(*metrics: tuple[str, str]) -> dict[str, object]:
    """An engine `x` with custom metrics."""
    listed = [{"attributeKey": key, "metricSpec": spec} for key, spec in metrics]
    return {"engineConfigs": [{"name": "x", "customMetrics": listed}]}


def test_custom_metrics_become_attributes_of_the_endpoints_of_their_engine():
    plugin = extractor(**custom(("Heat", "heat{place=inside}"), ("Noise", "noise")))
    heat, noise = DataKey[float]("Heat", "core"), DataKey[float]("Noise", "core")
    assert list(plugin.produces) == [ENGINE_METRICS, heat, noise]
    read = plugin.reader(engine("x"))
    page = b'heat{place="outside"} 1\nheat{place="inside"} -2.5\nnoise 3\n'
    assert read(page) == Measurements(attributes={heat: -2.5, noise: 3.0})
    assert read(b"noise 4\n") == Measurements(
        attributes={heat: None, noise: 4.0}, missing={"Heat/core": "heat{place=inside}"}
    )
    assert plugin.reader(engine("triton"))(page).attributes is None


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"defaultEngine": "vlm"}, "defaultEngine: no mapping for engine 'vlm' (did you mean \"vllm\"?)"),
        ({"engineConfigs": [{"name": ""}]}, "engineConfigs[0].name: is empty"),
        (
            {"engineConfigs": [{"name": "x"}]},
            "engineConfigs[0]: names no series; give at least queuedRequestsSpec",
        ),
        (
            {"engineConfigs": [{"name": "x", "kvUsageSpec": "a{b"}]},
            "engineConfigs[0].kvUsageSpec: 'a{b' is not a metric; write name or name{label=value,...}",
        ),
        (
            custom(("", "m")),
            "engineConfigs[0].customMetrics[0].attributeKey: '' is not the name of an attribute",
        ),
        (
            custom(("a/b", "m")),
            "engineConfigs[0].customMetrics[0].attributeKey: 'a/b' is not the name of an attribute",
        ),
        (
            custom(("k", "m"), ("k", "n")),
            "engineConfigs[0].customMetrics[1].attributeKey: 'k' is there twice",
        ),
        (custom(("k", "m{")), "engineConfigs[0].customMetrics[0].metricSpec: 'm{' is not a metric"),
        (
            custom(*((f"k{i}", "m") for i in range(65))),
            "engineConfigs[0].customMetrics: has 65 metrics, more than the 64 allowed",
        ),
    ],
)
def test_a_wrong_mapping_is_an_error_at_its_place(params: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        extractor(**params)
    assert str(caught.value).startswith(message)


def test_unknown_fields_are_refused():
    with pytest.raises(
        msgspec.ValidationError, match=r"unknown field `queueSpec` - at `\$\.engineConfigs\[0\]`"
    ):
        extractor(engineConfigs=[{"name": "x", "queueSpec": "q"}])


def test_it_is_an_extractor_of_prometheus_texts():
    assert isinstance(extractor(), Extractor)
    assert extractor().expects == "prometheus-text"


def test_its_state_is_the_engines_known_and_those_nobody_mapped():
    plugin = extractor()
    endpoint = EndpointTable().add(
        EndpointSpec("a", "default", "10.0.0.1", 8000, {"llm-d.ai/engine-type": "odd"})
    )
    plugin.reader(endpoint)
    shown = plugin.dump_state()
    assert (shown["defaultEngine"], shown["unmapped"], shown["totalUnmapped"]) == ("vllm", ["odd"], 1)
    assert "sglang" in shown["engines"]
