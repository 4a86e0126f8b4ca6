"""The YAML file: what it means when fields are left out, and how mistakes are told."""

from pathlib import Path

import pytest

from cli.local.config import load, parse, with_free_ports
from dataplane.errors import ConfigError
from tests.architecture.tree import ROOT


def test_name_and_models_are_enough_for_a_pool():
    config = parse("pools: [{name: a, models: [m]}]")
    (pool,) = config.pools
    assert (pool.failure_mode, pool.simulator.replicas, pool.picker.config) == ("FailOpen", 2, None)
    assert (config.gateway.address, config.gateway.port, config.gateway.max_request_body) == (
        "127.0.0.1",
        0,
        16 * 1024 * 1024,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "pools: [{name: a, models: [m], simulator: {replcas: 3}}]",
            'pools[0].simulator.replcas: unknown field (did you mean "replicas"?)',
            id="misspelt field",
        ),
        pytest.param(
            "gatway: {}\npools: [{name: a, models: [m]}]",
            'gatway: unknown field (did you mean "gateway"?)',
            id="misspelt section",
        ),
        pytest.param(
            "pools: [{name: a, models: [m]}, {name: b, models: [n], simulator: {replicas: many}}]",
            "pools[1].simulator.replicas: expected int, got str",
            id="wrong type",
        ),
        pytest.param(
            "pools: [{name: a, models: [m], simulator: {replicas: 0}}]",
            "pools[0].simulator.replicas: expected int >= 1",
            id="out of range",
        ),
        pytest.param(
            "pools: [{name: a, models: [m], failureMode: open}]",
            "pools[0].failureMode: must be FailOpen or FailClose",
            id="wrong choice",
        ),
        pytest.param("pools: [{models: [m]}]", "pools[0].name: is required", id="missing field"),
        pytest.param("pools: []", "pools: must name between 1 and 32 pools", id="no pool"),
        pytest.param(
            "gateway: {port: 70000}\npools: [{name: a, models: [m]}]",
            "gateway.port: expected int <= 65535",
            id="port",
        ),
        pytest.param("", "pools: is required", id="empty file"),
        pytest.param("pools: [{name: a, models: []}]", "pools[0].models: names no model", id="no model"),
        pytest.param(
            "pools: [{name: a, models: [m], objectives: {gold: high}}]",
            "pools[0].objectives.gold: expected int, got str",
            id="priority",
        ),
        pytest.param(
            "pools: [{name: a, models: [m], objectives: {Gold: 1}}]",
            "pools[0].objectives.Gold: 'Gold' is no name; "
            "use lower-case letters, digits, - and ., at most 253",
            id="objective's name",
        ),
        pytest.param(
            "pools: [{name: a, models: [m], rewrites: [{matches: [{model: {value: x}}], targets: []}]}]",
            "pools[0].rewrites[0].targets: names no model; give at least one",
            id="rewrite without a target",
        ),
        pytest.param(
            "pools: [{name: a, models: [m]}, {name: b, models: [n], "
            "rewrites: [{matches: [{model: {value: m}}], targets: [{modelRewrite: n}]}]}]",
            "pools: model 'm' appears more than once",
            id="alias that another pool serves",
        ),
        pytest.param(
            "pools: [{name: a, models: [m]}]\ngateway: {port: 1, port: 2}",
            "gateway.port: the key occurs twice on line 2; remove one",
            id="repeated field",
        ),
        pytest.param(
            "gateway: {maxRequestBody: 1k}\npools: [{name: a, models: [m]}]",
            "gateway.maxRequestBody: must be between 1Mi and 64Mi",
            id="body cap",
        ),
        pytest.param(
            "gateway: {streamIdleTimeout: 0s}\npools: [{name: a, models: [m]}]",
            "gateway.streamIdleTimeout: must be more than 0s and at most 1h",
            id="timeout",
        ),
        pytest.param(
            "gateway: {port: x}\npools: [{name: a, models: [m], failureMode: open}]",
            "2 problems:\n  - gateway.port: expected int, got str\n"
            "  - pools[0].failureMode: must be FailOpen or FailClose",
            id="all at once",
        ),
        pytest.param(
            "pools: [{name: a, models: [m]}, {name: b, models: [m]}]",
            "pools: model 'm' appears more than once",
            id="model served twice",
        ),
        pytest.param(
            "pools: [{name: a, models: [m]}, {name: a, models: [n]}]",
            "pools: pool name 'a' appears more than once",
            id="pool named twice",
        ),
    ],
)
def test_mistake_is_told_with_its_place(text: str, message: str):
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert str(raised.value) == message


def test_broken_yaml_is_told_with_its_line():
    with pytest.raises(ConfigError, match=r"^line 2, column \d+: "):
        parse("pools:\n  - name: [")


def test_missing_file_says_which_flag_names_another(tmp_path: Path):
    with pytest.raises(
        ConfigError, match="cannot be read: No such file or directory; name another file with --config"
    ):
        load(tmp_path / "absent.yaml")


def test_free_ports_replace_every_configured_one():
    config = parse(
        "gateway: {port: 1, adminPort: 2}\n"
        "pools: [{name: a, models: [m], simulator: {adminPort: 3, replicas: 5}, "
        "picker: {grpcPort: 4, healthPort: 5, metricsPort: 6, flags: [--v, '4']}}]"
    )
    free = with_free_ports(config)
    (pool,) = free.pools
    ports = (free.gateway.port, free.gateway.admin_port, pool.simulator.admin_port, pool.picker.grpc_port)
    assert (*ports, pool.picker.health_port, pool.picker.metrics_port) == (0, 0, 0, 0, 0, 0)
    assert (pool.simulator.replicas, pool.picker.flags) == (5, ["--v", "4"])


def test_shipped_file_describes_two_pools_with_a_model_each():
    config = load(ROOT / "deploy/local.yaml")
    assert [(pool.name, pool.models, pool.simulator.replicas) for pool in config.pools] == [
        ("llama-8b", ["llama-8b"], 4),
        ("qwen-32b", ["qwen-32b"], 3),
    ]
