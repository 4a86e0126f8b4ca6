"""What a picker is given to reach the control plane: flags that it takes, a token that nobody else reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.fleet.local.access import ControlPlane, PoolAccess, kept_token
from dataplane.errors import ConfigError
from dataplane.processes.child import StartError
from epp.options import parse_args
from tests.support.certificates import write_certificate

HERE = ControlPlane(server="127.0.0.1:18000")


def test_a_picker_finds_its_stream_its_token_and_what_it_was_sent_last(tmp_path: Path) -> None:
    access = PoolAccess("llama", tmp_path / "llama", HERE)
    access.token = "pmt_secret"
    access.prepare()
    flags = access.flags()
    options = parse_args(["--endpoints-file", "e", "--pool-name", "llama", *flags])
    assert (options.xds_server, options.xds_node_id, options.xds_ca) == ("127.0.0.1:18000", "llama", "")
    assert Path(options.xds_cache).parent == tmp_path / "llama"
    token = Path(options.xds_token_file)
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("pmt_secret", 0o600)
    assert "pmt_secret" not in " ".join(flags)


def test_a_token_is_kept_for_the_next_start_and_replaced_by_another(tmp_path: Path) -> None:
    assert (kept_token(tmp_path), PoolAccess("a", tmp_path, HERE).token) == ("", "")
    first = PoolAccess("a", tmp_path, HERE)
    first.token = "pmt_1"
    first.prepare()
    again = PoolAccess("a", tmp_path, HERE)
    assert again.token == "pmt_1"
    again.token = "pmt_2"
    again.prepare()
    assert kept_token(tmp_path) == "pmt_2"
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_without_a_token_no_picker_is_started(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="there is no token for its picker yet"):
        PoolAccess("a", tmp_path, HERE).prepare()
    assert list(tmp_path.iterdir()) == []


def test_files_are_named_so_that_every_process_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_certificate(tmp_path)
    control_plane = ControlPlane(
        server="xds.example:18000", ca_file="tls.crt", cert_file="tls.crt", key_file="tls.key"
    )
    control_plane.check()
    assert control_plane.flags() == [
        *("--xds-server", "xds.example:18000"),
        *("--xds-ca", str(tmp_path / "tls.crt")),
        *("--xds-cert", str(tmp_path / "tls.crt")),
        *("--xds-key", str(tmp_path / "tls.key")),
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (ControlPlane(server="nowhere"), "--xds-server: 'nowhere' is not host:port"),
        (ControlPlane(server="a:1", key_file="key"), "--xds-key: needs --xds-cert"),
        (ControlPlane(server="a:1", ca_file="/nowhere"), "--xds-ca: cannot be read"),
    ],
)
def test_what_no_picker_would_start_with_is_refused(wrong: ControlPlane, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        wrong.check()
    assert str(refused.value).startswith(told)
