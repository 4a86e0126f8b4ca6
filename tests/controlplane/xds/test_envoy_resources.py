"""Everything an Envoy can be told, in its own judgement and by its names."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from cli.local.commands import envoy_binary
from controlplane.xds.envoy.bootstrap import (
    ControlPlaneAddress,
    EnvoyIdentity,
    bootstrap,
    without_control_plane,
)
from controlplane.xds.envoy.encode import MESSAGES, TYPED_STRUCT
from controlplane.xds.envoy.resources import (
    Certificate,
    GatewayShape,
    gateway_resources,
    static_configuration,
)
from controlplane.xds.envoy.shapes import ListenerShape, PickerShape, PoolShape
from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.support.certificates import write_certificate
from tests.support.waiting import PATIENCE_S

LISTENING = ListenerShape(
    address="127.0.0.1",
    port=8080,
    max_body_bytes=1 << 20,
    stream_idle_timeout_s=300,
    observe_responses=False,
    access_log="/dev/null",
    default_picker="epp-",
    tls_secret="shown",
)
OURS = PoolShape(
    name="ours",
    names=("llama", "100%"),
    fail_open=True,
    observe_responses=True,
    picker=PickerShape(address="127.0.0.1", port=9002, health_port=9003),
)
THEIRS = PoolShape(
    name="theirs",
    names=("llama", "qwen"),
    fail_open=False,
    observe_responses=False,
    picker=PickerShape(address="epp.example.internal", port=9002, health_port=9003, is_tls=True),
)
NOWHERE = replace(THEIRS, name="nowhere", names=(), picker=None)
ENVOY = EnvoyIdentity(node_id="e", gateway="g", admin_port=0)


def shape(certificate: Certificate | None = None, *pools: PoolShape) -> GatewayShape:
    return GatewayShape(
        listener=LISTENING,
        pools=pools or (OURS, THEIRS, NOWHERE),
        endpoints={"ours": (("10.0.0.1", 8000), ("fd00::1", 8001))},
        certificate=certificate,
    )


def decoded(type_url: str, name: str, found: Any = None) -> dict[str, Any]:
    value = (found or gateway_resources(shape()))[type_url][name].value
    plain: dict[str, Any] = json_format.MessageToDict(MESSAGES[type_url].FromString(value))
    return plain


def verdict(folder: Path, document: dict[str, Any]) -> tuple[int, str]:
    file = folder / "envoy.json"
    file.write_text(json.dumps(document))
    done = subprocess.run(
        [envoy_binary(), "--config-path", file, "--mode", "validate"],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stderr


@pytest.mark.integration
def test_envoy_accepts_a_whole_gateway_and_a_start_towards_a_control_plane(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    shown = Certificate(name="shown", chain=cert.read_text(), key=key.read_text())
    whole = without_control_plane(ENVOY, static_configuration(shape(shown)), str(tmp_path / "admin"))
    assert verdict(tmp_path, whole)[0] == 0, verdict(tmp_path, whole)[1]
    server = ControlPlaneAddress(
        host="cp.example.internal",
        port=18000,
        token="t",
        ca_file=str(cert),
        cert_file=str(cert),
        key_file=str(key),
    )
    for address in (server, replace(server, host="127.0.0.1"), replace(server, ca_file="")):
        assert verdict(tmp_path, bootstrap(ENVOY, address))[0] == 0, verdict(
            tmp_path, bootstrap(ENVOY, address)
        )


def test_a_model_of_two_pools_is_the_first_ones() -> None:
    routes = decoded(ROUTES, "public")["virtualHosts"][0]["routes"]
    assert [route["name"] for route in routes if "route" in route] == ["ours", "theirs", "ours"]
    listing = routes[0]["directResponse"]["bodyFormat"]["jsonFormat"]
    assert [(each["id"], each["owned_by"]) for each in listing["data"]] == [
        ("llama", "ours"),
        ("100%%", "ours"),
        ("qwen", "theirs"),
    ]


def test_a_gateway_without_pools_knows_no_model_and_answers_so() -> None:
    empty = gateway_resources(replace(shape(), pools=()))
    routes = decoded(ROUTES, "public", empty)["virtualHosts"][0]["routes"]
    assert [route["name"] for route in routes] == ["models", "unknown-model", "unknown-path"]


def test_only_a_pool_that_differs_from_its_gateway_says_what_its_picker_sees() -> None:
    routes = decoded(ROUTES, "public")["virtualHosts"][0]["routes"]
    modes = {
        route["name"]: route["typedPerFilterConfig"]["epp"]["overrides"]
        .get("processingMode", {})
        .get("responseBodyMode")
        for route in routes
        if "route" in route
    }
    assert modes == {"ours": "FULL_DUPLEX_STREAMED", "theirs": None}


def test_what_only_envoy_knows_travels_as_plain_data() -> None:
    (policy,) = decoded(CLUSTER, "pool-ours")["loadBalancingPolicy"]["policies"]
    config = policy["typedExtensionConfig"]["typedConfig"]
    assert (config["@type"], config["typeUrl"].rpartition(".")[2]) == (TYPED_STRUCT, "OverrideHost")
    assert "selected_host_key" in config["value"]


def test_endpoints_of_both_versions_are_told_and_a_pool_without_any_as_well() -> None:
    (group,) = decoded(ENDPOINTS, "pool-ours")["endpoints"]
    sockets = [each["endpoint"]["address"]["socketAddress"] for each in group["lbEndpoints"]]
    assert sockets == [
        {"address": "10.0.0.1", "portValue": 8000},
        {"address": "fd00::1", "portValue": 8001},
    ]
    assert decoded(ENDPOINTS, "pool-theirs") == {"clusterName": "pool-theirs", "endpoints": [{}]}


def test_a_change_of_one_pool_leaves_the_bytes_of_all_others_and_the_listener_as_they_are() -> None:
    before = gateway_resources(shape())
    after = gateway_resources(shape(None, OURS, replace(THEIRS, fail_open=True), NOWHERE))
    changed = {
        (type_url.rpartition(".")[2], name)
        for type_url, found in after.items()
        for name, each in found.items()
        if before[type_url].get(name) != each
    }
    assert changed == {("Cluster", "pool-theirs"), ("RouteConfiguration", "public")}
    assert after[LISTENER] == before[LISTENER]
