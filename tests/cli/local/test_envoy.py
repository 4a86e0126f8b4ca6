"""The generated Envoy configuration: golden file, rules that must not get lost, the real binary's verdict.

`POINTSMAN_GOLDEN=rewrite scripts/test -- tests/cli/local/test_envoy.py` rewrites the golden file.
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.local import commands
from cli.local.endpoints import ClusterFile
from cli.local.envoy import bootstrap
from cli.local.plan import Plan
from controlplane.xds.envoy.clusters import endpoint_assignment
from tests.cli.local.plans import two_pools

GOLDEN = Path(__file__).parent / "vectors/envoy.json"


@pytest.fixture
def plan() -> Plan:
    return two_pools(Path("/state"))


def manager(document: dict[str, Any]) -> dict[str, Any]:
    """The HTTP connection manager of the only listener."""
    (listener,) = document["static_resources"]["listeners"]
    found: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def routes(plan: Plan) -> list[dict[str, Any]]:
    """All routes."""
    found: list[dict[str, Any]] = manager(bootstrap(plan))["route_config"]["virtual_hosts"][0]["routes"]
    return found


def clusters(plan: Plan) -> dict[str, Any]:
    """Clusters by name."""
    return {cluster["name"]: cluster for cluster in bootstrap(plan)["static_resources"]["clusters"]}


def test_configuration_is_the_reviewed_one(plan: Plan):
    text = json.dumps(bootstrap(plan), indent=1) + "\n"
    if os.environ.get("POINTSMAN_GOLDEN") == "rewrite":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.integration
def test_envoy_accepts_the_configuration(tmp_path: Path):
    plan = two_pools(tmp_path)
    plan.logs.mkdir(parents=True)
    for pool in plan.pools:
        ClusterFile(pool, print).write()
    plan.envoy_file.write_text(json.dumps(bootstrap(plan)))
    command = list(map(str, commands.envoy(plan, validate=True)))
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"configuration '{plan.envoy_file}' OK\n"), done.stderr


def test_headers_are_stripped_before_and_routed_after_the_body_is_known(plan: Plan):
    assert [each["name"] for each in manager(bootstrap(plan))["http_filters"]] == [
        "strip",
        "body",
        "epp",
        "router",
    ]


def test_every_route_but_the_pools_switches_the_picker_off(plan: Plan):
    off = [route["name"] for route in routes(plan) if route["typed_per_filter_config"]["epp"].get("disabled")]
    on = [route["name"] for route in routes(plan) if "overrides" in route["typed_per_filter_config"]["epp"]]
    assert off == ["models", "model", "model", "model", "model", "unknown-model", "unknown-path"]
    assert on == ["small", "large", "small"]


def test_each_pool_has_its_own_picker_and_failure_mode(plan: Plan):
    overrides = {
        route["name"]: route["typed_per_filter_config"]["epp"]["overrides"]
        for route in routes(plan)
        if "route" in route
    }
    assert {
        name: (each["grpc_service"]["envoy_grpc"]["cluster_name"], each["failure_mode_allow"])
        for name, each in overrides.items()
    } == {"small": ("epp-small", True), "large": ("epp-large", False)}


def test_picker_clusters_know_quickly_and_without_panic_that_a_picker_is_gone(plan: Plan):
    (check,) = clusters(plan)["epp-small"]["health_checks"]
    assert check["grpc_health_check"] == {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"}
    assert (check["interval"], check["no_traffic_interval"]) == ("0.2s", "0.2s")
    assert clusters(plan)["epp-small"]["common_lb_config"] == {"healthy_panic_threshold": {"value": 0}}


def test_fail_close_pool_has_no_endpoint_without_a_pick(plan: Plan):
    def fallback(name: str) -> str:
        (policy,) = clusters(plan)[name]["load_balancing_policy"]["policies"]
        (inner,) = policy["typed_extension_config"]["typed_config"]["fallback_policy"]["policies"]
        found: str = inner["typed_extension_config"]["name"]
        return found

    assert fallback("pool-small") == "envoy.load_balancing_policies.round_robin"
    assert fallback("pool-large") == "envoy.load_balancing_policies.subset"


def test_unreachable_endpoints_are_ejected_but_never_all_and_never_for_an_answer(plan: Plan):
    detection = clusters(plan)["pool-small"]["outlier_detection"]
    enforced = {name: value for name, value in detection.items() if name.startswith("enforcing_")}
    assert {name for name, value in enforced.items() if value} == {
        "enforcing_consecutive_local_origin_failure"
    }
    assert detection["split_external_local_origin_errors"] is True
    assert detection["max_ejection_percent"] == 99


def test_picked_address_has_one_source_so_that_no_retry_repeats_it(plan: Plan):
    (policy,) = clusters(plan)["pool-small"]["load_balancing_policy"]["policies"]
    assert policy["typed_extension_config"]["typed_config"]["override_host_sources"] == [
        {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
    ]


def test_responses_are_not_sent_to_the_picker_when_not_observed(plan: Plan):
    def modes(observe: bool) -> tuple[str, str]:
        changed = replace(plan, observe_responses=observe)
        epp = manager(bootstrap(changed))["http_filters"][2]["typed_config"]["processing_mode"]
        return epp["response_body_mode"], epp["response_trailer_mode"]

    assert modes(True) == ("FULL_DUPLEX_STREAMED", "SEND")
    assert modes(False) == ("NONE", "SKIP")


def test_request_trailers_cannot_arrive(plan: Plan):
    assert manager(bootstrap(plan))["codec_type"] == "HTTP1"
    assert "enable_trailers" not in manager(bootstrap(plan))["http_protocol_options"]


def test_percent_signs_of_a_model_name_are_not_read_as_a_format(plan: Plan):
    odd = replace(plan, pools=(replace(plan.pools[0], names=("100%",)),))
    listing = routes(odd)[0]["direct_response"]["body_format"]["json_format"]
    assert [model["id"] for model in listing["data"]] == ["100%%"]


def test_endpoint_assignment_names_cluster_version_and_addresses(plan: Plan):
    document = endpoint_assignment(plan.pools[0].name, [("127.0.0.2", 8000), ("127.0.0.3", 8001)], 7)
    assert document == {
        "version_info": "7",
        "resources": [
            {
                "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": "pool-small",
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {"endpoint": {"address": {"socket_address": {"address": a, "port_value": p}}}}
                            for a, p in (("127.0.0.2", 8000), ("127.0.0.3", 8001))
                        ]
                    }
                ],
            }
        ],
    }
