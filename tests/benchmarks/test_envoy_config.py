"""The generated Envoy configuration."""

import pytest

from benchmarks.envoy_config import Balancing, Mode, bootstrap
from benchmarks.envoy_process import parse_counters

ENDPOINTS = ["127.0.0.1:8001", "127.0.0.1:8002"]


def filters(config: dict) -> list[dict]:
    (listener,) = config["static_resources"]["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]


def test_envoy_alone_has_a_router_and_one_cluster():
    config = bootstrap(ENDPOINTS, Balancing.ROUND_ROBIN)
    assert [one["name"] for one in filters(config)] == ["envoy.filters.http.router"]
    assert [one["name"] for one in config["static_resources"]["clusters"]] == ["model-servers"]


@pytest.mark.parametrize(
    ("mode", "response_body"), [(Mode.FULL_DUPLEX, "FULL_DUPLEX_STREAMED"), (Mode.REQUEST_ONLY, "NONE")]
)
def test_mode_decides_whether_responses_are_sent(mode: Mode, response_body: str):
    config = bootstrap(ENDPOINTS, Balancing.PICKED, ext_proc="127.0.0.1:9002", mode=mode)
    ext_proc, router = filters(config)
    processing = ext_proc["typed_config"]["processing_mode"]
    assert router["name"] == "envoy.filters.http.router"
    assert processing["request_body_mode"] == "FULL_DUPLEX_STREAMED"
    assert processing["response_body_mode"] == response_body
    assert [one["name"] for one in config["static_resources"]["clusters"]] == ["model-servers", "ext-proc"]


def test_picked_endpoint_comes_from_metadata_then_header():
    config = bootstrap(ENDPOINTS, Balancing.PICKED, ext_proc="127.0.0.1:9002")
    policy = config["static_resources"]["clusters"][0]["load_balancing_policy"]["policies"][0]
    sources = policy["typed_extension_config"]["typed_config"]["override_host_sources"]
    assert [list(source) for source in sources] == [["metadata"], ["header"]]


@pytest.mark.parametrize("balancing", Balancing)
def test_every_balancing_is_one_policy_under_its_name(balancing: Balancing):
    (policy,) = bootstrap(ENDPOINTS, balancing)["static_resources"]["clusters"][0]["load_balancing_policy"][
        "policies"
    ]
    assert policy["typed_extension_config"]["name"] == balancing


def test_counters_are_named_by_their_last_part():
    text = (
        "http.bench.ext_proc.streams_started: 12\n"
        "http.bench.ext_proc.spurious_msgs_received: 0\n"
        "http.bench.ext_proc.duration: P0(nan,1.0) P25(nan,1.0)\n"
    )
    assert parse_counters(text) == {"streams_started": 12, "spurious_msgs_received": 0}
