"""From the file to ports, paths and picker configurations."""

import random
import socket
from pathlib import Path

import pytest

from cli.local.config import parse
from cli.local.plan import DEFAULT_PICKER, make_plan
from dataplane.errors import ConfigError
from dataplane.processes.ports import FREE_PORTS, Ports
from tests.cli.local.plans import counted_ports, two_pools


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_every_port_of_a_plan_is_different(tmp_path: Path):
    plan = make_plan(
        parse("pools: [{name: a, models: [m]}, {name: b, models: [n]}]"), tmp_path, Ports(random.Random(1))
    )
    ports = [plan.port, plan.admin_port]
    for pool in plan.pools:
        ports += [pool.grpc_port, pool.health_port, pool.metrics_port, pool.simulator_admin_port]
    assert len(set(ports)) == 10
    assert set(ports) <= set(FREE_PORTS)


def test_configured_port_in_use_is_refused_with_its_field(tmp_path: Path, taken_port: int):
    config = parse(f"pools: [{{name: a, models: [m], picker: {{grpcPort: {taken_port}}}}}]")
    with pytest.raises(ConfigError) as raised:
        make_plan(config, tmp_path, Ports(random.Random(1)))
    assert str(raised.value) == (
        f"pools[0].picker.grpcPort: port {taken_port} is in use; configure another, or 0 for a free one"
    )


def test_port_configured_twice_is_refused(tmp_path: Path):
    config = parse("pools: [{name: a, models: [m], picker: {grpcPort: 20100, healthPort: 20100}}]")
    with pytest.raises(ConfigError) as raised:
        make_plan(config, tmp_path, Ports(random.Random(1)))
    assert str(raised.value) == "pools[0].picker.healthPort: port 20100 is already used elsewhere in the file"


def test_picker_discovers_the_endpoints_its_simulator_writes(tmp_path: Path):
    pool = two_pools(tmp_path).pools[0]
    discovery = {"path": str(tmp_path / "pools/small/endpoints.yaml"), "watchFile": True}
    assert pool.picker_config["plugins"] == [
        *DEFAULT_PICKER["plugins"],
        {"type": "file-discovery", "parameters": discovery},
    ]
    assert pool.picker_config["dataLayer"] == {"discovery": {"pluginRef": "file-discovery"}}
    assert pool.picker_config["schedulingProfiles"] == DEFAULT_PICKER["schedulingProfiles"]


def test_given_picker_config_is_kept_and_gets_discovery(tmp_path: Path):
    text = """
pools:
  - name: a
    models: [m]
    picker:
      config:
        plugins: [{type: random-picker}]
        dataLayer: {injectDefaults: false}
"""
    pool = make_plan(parse(text), tmp_path, counted_ports()).pools[0]
    assert [plugin["type"] for plugin in pool.picker_config["plugins"]] == ["random-picker", "file-discovery"]
    assert pool.picker_config["dataLayer"] == {
        "injectDefaults": False,
        "discovery": {"pluginRef": "file-discovery"},
    }
    assert "schedulingProfiles" not in pool.picker_config


def test_own_discovery_is_refused(tmp_path: Path):
    text = "pools: [{name: a, models: [m], picker: {config: {dataLayer: {discovery: {pluginRef: mine}}}}}]"
    with pytest.raises(ConfigError) as raised:
        make_plan(parse(text), tmp_path, counted_ports())
    assert raised.value.path == "pools[0].picker.config.dataLayer.discovery"


@pytest.mark.parametrize(
    ("address", "url"),
    [
        pytest.param("127.0.0.1", "http://127.0.0.1:8080", id="loopback"),
        pytest.param("0.0.0.0", "http://127.0.0.1:8080", id="everywhere"),
        pytest.param("::1", "http://[::1]:8080", id="ipv6"),
    ],
)
def test_url_is_one_a_client_on_this_machine_can_use(address: str, url: str, tmp_path: Path):
    text = f"gateway: {{address: '{address}', port: 8080}}\npools: [{{name: a, models: [m]}}]"
    assert make_plan(parse(text), tmp_path, counted_ports()).url == url


@pytest.mark.parametrize(
    ("observe", "rewrites", "shown"),
    [("true", "[]", True), ("false", "[]", False), ("false", "[{targets: [{modelRewrite: m}]}]", True)],
)
def test_responses_are_shown_where_asked_and_where_models_in_them_have_to_be_renamed(
    observe: str, rewrites: str, shown: bool, tmp_path: Path
):
    pools = f"pools: [{{name: a, models: [x]}}, {{name: b, models: [m], rewrites: {rewrites}}}]"
    config = parse(f"gateway: {{observeResponses: {observe}}}\n{pools}")
    assert make_plan(config, tmp_path, Ports(random.Random(1))).observe_responses is shown
