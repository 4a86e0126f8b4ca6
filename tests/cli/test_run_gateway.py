"""`pointsman controlplane run-gateway`: what Envoy starts with, and what is refused before anything runs."""

import json
from pathlib import Path

from cli.main import main


def call(folder: Path, *more: str, server: str = "127.0.0.1:18000") -> int:
    flags = ["--xds-server", server, "--xds-token-file", str(folder / "token"), "--state-dir", str(folder)]
    return main(["controlplane", "run-gateway", "public", *flags, *more])


def test_the_bootstrap_names_gateway_node_server_and_token(tmp_path: Path, capsys):
    (tmp_path / "token").write_text("pmt_x\n")
    assert call(tmp_path, "--node-id", "e1", "--admin-port", "9000", "--print-bootstrap") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["node"] == {"id": "e1", "cluster": "public"}
    assert found["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 9000}
    (service,) = found["dynamic_resources"]["ads_config"]["grpc_services"]
    assert service["initial_metadata"] == [{"key": "authorization", "value": "Bearer pmt_x"}]
    (cluster,) = found["static_resources"]["clusters"]
    assert (cluster["type"], "transport_socket" in cluster) == ("STATIC", False)


def test_addresses_and_tokens_that_are_none_are_refused(tmp_path: Path, capsys):
    assert call(tmp_path) == 2
    (tmp_path / "token").write_text("")
    assert call(tmp_path) == 2
    assert call(tmp_path, server="nowhere") == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("pointsman controlplane run-gateway: error: ") for line in said] == [True] * 3
    assert "holds no token" in said[1]
    assert "'nowhere' is not host:port" in said[2]
