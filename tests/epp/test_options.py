"""The picker's flags: llm-d's defaults, what is refused and what is warned of."""

import dataclasses
import logging
import re

import msgspec
import pytest

from dataplane.errors import ConfigError
from dataplane.observability.logs import TRACE
from epp.options import FLAGS, EppOptions, parse_args
from tests.architecture.tree import ROOT


def refused(*argv: str) -> str:
    """The complaint about these flags."""
    with pytest.raises(ConfigError) as caught:
        parse_args(argv)
    return str(caught.value)


def test_without_flags_the_defaults_of_the_table_are_those_of_the_options():
    assert parse_args([]) == EppOptions()


def test_every_option_comes_from_a_flag():
    flags = {flag.name.replace("-", "_") for flag in FLAGS}
    derived = {"log_level", "log_json", "warnings"}
    assert {field.name for field in dataclasses.fields(EppOptions)} - flags == derived


def test_the_reference_names_every_default():
    page = (ROOT / "docs/reference/epp-flags.md").read_text()
    rows = re.findall(r"^\| `--([\w-]+)` \| ([^|]*)\|", page, re.MULTILINE)
    assert {name: default.strip() for name, default in rows} == {
        flag.name: flag.default for flag in FLAGS if not flag.removed
    }


def test_all_kinds_of_flags_reach_the_options():
    options = parse_args(
        [
            *("--grpc-port=1", "--grpc-health-port=2", "--metrics-port", "3", "--host=127.0.0.1"),
            *("--pool-name=p", "--config-file=f", "--allow-experimental-plugins"),
            *("--endpoints-file=e", "--objects-file=o", "--pool-namespace=n", "--pool-group=g"),
            *("--drain-timeout=0s", "--request-timeout=5s", "--max-request-body=1Mi"),
            "--grpc-max-recv-msg-size=8MiB",
            *("--disable-endpoint-subset-filter", "--emit-endpoint-scores=true", "--decision-log-size=0"),
            *("--explain-sampling=0.5", "--explain-header", "id"),
            *("--refresh-metrics-interval=100ms", "--metrics-staleness-threshold=3s", "--health-checking"),
            *(
                "--secure-serving=false",
                "--cert-path=/c",
                "--enable-cert-reload",
                "--tls-min-version=VersionTLS13",
            ),
            *("--tls-cipher-suites=A,B", "--tls-cipher-suites=C", "--enable-grpc-stream-metrics"),
            *("-v=4", "--zap-encoder=json"),
        ]
    )
    assert options == EppOptions(
        grpc_port=1,
        grpc_health_port=2,
        metrics_port=3,
        host="127.0.0.1",
        metrics_host="127.0.0.1",
        pool_name="p",
        config_file="f",
        endpoints_file="e",
        objects_file="o",
        pool_namespace="n",
        pool_group="g",
        allow_experimental_plugins=True,
        drain_timeout=0.0,
        request_timeout=5.0,
        max_request_body=1 << 20,
        grpc_max_recv_msg_size=8 << 20,
        disable_endpoint_subset_filter=True,
        emit_endpoint_scores=True,
        decision_log_size=0,
        explain_sampling=0.5,
        explain_header="id",
        refresh_metrics_interval=0.1,
        metrics_staleness_threshold=3.0,
        health_checking=True,
        secure_serving=False,
        cert_path="/c",
        enable_cert_reload=True,
        tls_min_version="VersionTLS13",
        tls_cipher_suites=("A", "B", "C"),
        enable_grpc_stream_metrics=True,
        log_level=logging.DEBUG,
        log_json=True,
    )


def test_a_control_plane_is_named_with_all_that_it_needs():
    files = ["--xds-token-file=t", "--xds-ca=a", "--xds-cert=c", "--xds-key=k", "--xds-cache=l"]
    options = parse_args(["--xds-server=[::1]:18000", *files, "--xds-node-id=n"])
    assert options == EppOptions(
        xds_server="[::1]:18000",
        xds_token_file="t",
        xds_ca="a",
        xds_cert="c",
        xds_key="k",
        xds_cache="l",
        xds_node_id="n",
    )


@pytest.mark.parametrize(
    ("server", "more", "count"),
    [
        ("cp.example:1", [], 1),
        ("cp.example:1", ["--xds-ca=a"], 0),
        ("127.0.0.1:1", [], 0),
        ("[::1]:1", [], 0),
        ("localhost:1", [], 0),
    ],
)
def test_a_token_that_travels_in_clear_is_warned_of(server: str, more: list[str], count: int):
    warnings = parse_args([f"--xds-server={server}", "--xds-token-file=t", *more]).warnings
    assert warnings == ("without --xds-ca the token for the control plane travels in clear",) * count


def test_the_metrics_port_can_have_an_address_of_its_own():
    options = parse_args(["--host=10.0.0.1", "--metrics-host=127.0.0.1"])
    assert (options.host, options.metrics_host) == ("10.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--config-file=a", "--config-text=b"], "--config-file: excludes --config-text; give one of them"),
        (["--grpc-port=70000"], "--grpc-port: 70000 is not a port; use 1 to 65535, or 0 for any free one"),
        (["--metrics-port=-1"], "--metrics-port: -1 is not a port"),
        (["--metrics-port=9002"], "--metrics-port: 9002 is also --grpc-port; the ports must differ"),
        (
            ["--grpc-health-port=9090"],
            "--metrics-port: 9090 is also --grpc-health-port; the ports must differ",
        ),
        (
            ["--refresh-metrics-interval=0s"],
            "--refresh-metrics-interval: 0s is out of range; use more than 0s",
        ),
        (["--metrics-staleness-threshold=-1s"], "--metrics-staleness-threshold: -1s is out of range"),
        (
            ["--refresh-prometheus-metrics-interval=0"],
            "--refresh-prometheus-metrics-interval: 0s is out of range",
        ),
        (["--request-timeout=0s"], "--request-timeout: 0s is out of range; use more than 0s"),
        (["--drain-timeout=-1s"], "--drain-timeout: -1s is out of range; use 0s or more"),
        (["--max-request-body=0"], "--max-request-body: 0 is out of range; use 1 to 1073741824"),
        (["--max-request-body=2Gi"], "--max-request-body: 2147483648 is out of range"),
        (["--decision-log-size=100001"], "--decision-log-size: 100001 is out of range; use 0 to 100000"),
        (["--explain-sampling=1.5"], "--explain-sampling: '1.5' is not a share; use a number from 0 to 1"),
        (["--explain-sampling=nan"], "--explain-sampling: 'nan' is not a share"),
        (["--explain-sampling=1%"], "--explain-sampling: '1%' is not a share"),
        (["--explain-header=yes"], "--explain-header: 'yes' is unknown; use off, id, full"),
        (["--v=11"], "--v: 11 is out of range; use 0 to 10"),
        (["--zap-encoder=xml"], "--zap-encoder: 'xml' is no log format; use console or json"),
        (
            ["--zap-log-level=loud"],
            "--zap-log-level: 'loud' is no log level; use debug, info, error, panic or 1",
        ),
        (["--zap-log-level=0"], "--zap-log-level: '0' is no log level"),
        (["--grpc-max-recv-msg-size=big"], "--grpc-max-recv-msg-size: 'big' is not a quantity"),
        (
            ["--grpc-max-recv-msg-size=4Gi"],
            "--grpc-max-recv-msg-size: '4Gi' is out of range; use 1 to 2147483647",
        ),
        (
            ["--grpc-socket=/" + "x" * 107],
            "--grpc-socket: is longer than 107 bytes, the most a socket may have",
        ),
        (
            ["--endpoint-selector=app=x"],
            "--endpoint-selector: this build does not watch Kubernetes; list the end",
        ),
        (["--endpoint-target-ports=8000"], "--endpoint-target-ports: this build does not watch Kubernetes"),
        (
            ["--ha-enable-leader-election"],
            "--ha-enable-leader-election: this build elects no leader; run one",
        ),
        (["--metrics-client-ca-file=/c"], "--metrics-client-ca-file: needs --metrics-cert-dir"),
        (["--xds-server=c:1", "--objects-file=o"], "--xds-server: excludes --objects-file"),
        (["--xds-server=c"], "--xds-server: 'c' is not host:port"),
        (["--xds-server=c:0"], "--xds-server: 'c:0' is not host:port"),
        (["--xds-cache=f"], "--xds-cache: needs --xds-server, the control plane it is meant for"),
        (["--xds-server=c:1", "--xds-cert=f", "--xds-ca=f"], "--xds-cert: needs --xds-key"),
        (["--xds-server=c:1", "--xds-key=f", "--xds-ca=f"], "--xds-key: needs --xds-cert"),
        (["--xds-server=c:1", "--xds-key=f", "--xds-cert=f"], "--xds-cert: needs --xds-ca"),
        (["--xds-server=c:1", "--xds-node-id=a b"], "--xds-node-id: may have letters, digits and . _ : -"),
        (
            ["--lora-info-metric=x"],
            "--lora-info-metric: was removed: name the series of your engine in core-metrics-extractor",
        ),
        (
            ["--refresh-metrics-intervall=1s"],
            'unknown flag --refresh-metrics-intervall (did you mean "--refresh-met',
        ),
    ],
)
def test_wrong_flags_are_refused_with_the_way_out(argv: list[str], complaint: str):
    assert refused(*argv).startswith(complaint)


def test_ports_of_zero_may_be_equal_and_a_socket_needs_no_port():
    assert parse_args(["--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0"]).metrics_port == 0
    assert parse_args(["--grpc-socket=/run/epp.sock", "--metrics-port=9002"]).grpc_socket == "/run/epp.sock"


def test_a_short_refresh_interval_is_raised_and_said():
    options = parse_args(["--refresh-metrics-interval=10ms"])
    assert options.refresh_metrics_interval == 0.05
    assert options.warnings == ("--refresh-metrics-interval=0.01s is raised to its minimum of 0.05s",)


@pytest.mark.parametrize(
    "argv",
    [
        ["--tracing", "--metrics-endpoint-auth=false"],
        ["--ha-enable-leader-election=false", "--endpoint-selector=", "--metrics-cert-dir="],
        ["--refresh-prometheus-metrics-interval=10s"],
    ],
)
def test_flags_that_change_nothing_are_accepted_in_silence(argv: list[str]):
    assert parse_args(argv) == EppOptions()


@pytest.mark.parametrize(
    ("flag", "warning"),
    [
        (
            "--metrics-endpoint-auth=true",
            "--metrics-endpoint-auth has no effect: tokens are not reviewed, and metrics",
        ),
        ("--pool-namespace=n", "--pool-namespace has no effect: it says which documents of --objects-file"),
        ("--zap-stacktrace-level=error", "--zap-stacktrace-level has no effect: tracebacks come with every"),
        ("--zap-time-encoding=epoch", "--zap-time-encoding has no effect: times are RFC 3339"),
    ],
)
def test_what_somebody_may_rely_on_is_warned_of(flag: str, warning: str):
    (said,) = parse_args([flag]).warnings
    assert said.startswith(warning)


@pytest.mark.parametrize(
    ("argv", "level"),
    [
        ([], logging.INFO),
        (["-v=0"], logging.WARNING),
        (["-v=5"], TRACE),
        (["--zap-devel"], logging.DEBUG),
        (["--zap-devel", "-v=1"], logging.WARNING),
        (["--zap-log-level=error", "-v=5"], logging.ERROR),
        (["--zap-log-level=panic"], logging.CRITICAL),
        (["--zap-log-level=1"], logging.DEBUG),
        (["--zap-log-level=2"], TRACE),
    ],
)
def test_log_level_follows_verbosity_and_zap(argv: list[str], level: int):
    assert parse_args(argv).log_level == level


def test_the_options_can_be_shown_as_json():
    shown = msgspec.json.decode(msgspec.json.encode(parse_args(["--tls-cipher-suites=A"]).shown()))
    assert shown["grpc-port"] == 9002
    assert shown["tls-cipher-suites"] == ["A"]
    assert shown["log-level"] == "INFO"
    assert "warnings" not in shown


def test_usage_needs_somewhere_to_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VALKEY_URL", raising=False)
    assert refused("--usage-journal", "d") == (
        "--usage-journal: needs --valkey-url or VALKEY_URL, where its records go"
    )
    assert "--valkey-url: is no address" in refused("--valkey-url", "localhost:secret")
    assert "--usage-journal-size: 1024 is out of range" in refused("--usage-journal-size", "1Ki")
    monkeypatch.setenv("VALKEY_URL", "valkey://h:1")
    assert parse_args(["--usage-journal", "d"]).valkey_url == "redis://h:1"
    monkeypatch.setenv("VALKEY_URL", "nonsense")
    assert "VALKEY_URL: is no address" in refused()


def test_a_password_of_valkey_is_not_shown():
    shown = parse_args(["--valkey-url", "redis://me:secret@h:1/0"]).shown()
    assert shown["valkey-url"] == "redis://***@h:1/0"
