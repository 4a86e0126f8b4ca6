"""The flags of `pointsman ipp`."""

from __future__ import annotations

import json

import pytest

from dataplane.errors import ConfigError
from ipp.options import IppOptions, parse_args


def test_defaults_are_the_field_s() -> None:
    options = parse_args([])
    assert options == IppOptions()
    assert (options.grpc_port, options.grpc_health_port, options.metrics_port) == (9004, 9005, 9090)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--grpc-port=9090"], "--metrics-port: 9090 is also --grpc-port; the ports must differ"),
        (
            ["--metrics-port=70000"],
            "--metrics-port: 70000 is not a port; use 1 to 65535, or 0 for any free one",
        ),
        (["--grpc-port=-1"], "--grpc-port: -1 is not a port; use 1 to 65535, or 0 for any free one"),
        (["--config-file=a", "--config-text=b"], "--config-file: excludes --config-text; give one of them"),
        (["--name="], "--name: is empty; give the processor a name"),
        (["--plugin=x"], "--plugin: 'x' is not TYPE:NAME or TYPE:NAME:JSON"),
        (["--plugin"], "--plugin: needs a value: TYPE:NAME or TYPE:NAME:JSON"),
        (["--plugin=a:b", "--config-file=c"], "--plugin: excludes --config-file and --config-text"),
        (["--xds-cache=x"], "--xds-cache: needs --xds-server, the control plane it is meant for"),
        (
            ["--xds-server=a:1", "--policies-file=x"],
            "--xds-server: excludes --policies-file; policies come from one place",
        ),
    ],
)
def test_wrong_flags_are_refused_with_a_way_out(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_args(argv)
    assert str(caught.value) == message


def test_plugin_flags_of_former_releases_are_a_configuration() -> None:
    options = parse_args(
        [
            *("--plugin", 'body-field-to-header:f:{"fieldName":"model","headerName":"x:y"}'),
            "--plugin=base-model-to-header:b",
        ]
    )
    found = json.loads(options.config_text)
    assert found["plugins"] == [
        {
            "type": "body-field-to-header",
            "name": "f",
            "parameters": {"fieldName": "model", "headerName": "x:y"},
        },
        {"type": "base-model-to-header", "name": "b"},
    ]
    assert found["profiles"] == [
        {"name": "default", "plugins": {"request": [{"pluginRef": "f"}, {"pluginRef": "b"}]}}
    ]


def test_plugin_parameters_that_are_no_json_are_refused() -> None:
    with pytest.raises(ConfigError, match="--plugin: the parameters of n are no JSON"):
        parse_args(["--plugin=t:n:{"])


def test_what_has_no_effect_is_warned_of_when_it_is_asked_for() -> None:
    assert parse_args(["--tracing=true"]).warnings == (
        "--tracing has no effect: spans of a request are the picker's",
    )
    assert parse_args([]).warnings == ()
