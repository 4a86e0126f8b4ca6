"""`pointsman controlplane run-gateway`: what Envoy starts with, and what is refused before anything runs."""

import json
from pathlib import Path

from cli.main import main
from tests.support.certificates import Authority


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


def test_a_certificate_makes_a_token_needless(tmp_path: Path, capsys):
    authority = Authority(tmp_path)
    cert, key = map(str, authority.issue("e1", "spiffe://here/pointsman/gateway/public"))
    where = ["controlplane", "run-gateway", "public", "--xds-server", "127.0.0.1:1", "--print-bootstrap"]
    assert main([*where, "--xds-ca", str(authority.file), "--xds-cert", cert, "--xds-key", key]) == 0
    found = json.loads(capsys.readouterr().out)
    (service,) = found["dynamic_resources"]["ads_config"]["grpc_services"]
    assert "initial_metadata" not in service
    (cluster,) = found["static_resources"]["clusters"]
    (files,) = cluster["transport_socket"]["typed_config"]["common_tls_context"]["tls_certificates"]
    assert files == {"certificate_chain": {"filename": cert}, "private_key": {"filename": key}}
    for missing in ([], ["--xds-cert", cert, "--xds-key", key], ["--xds-cert", cert]):
        assert main([*where, *missing]) == 2
    said = [line.partition("error: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "--xds-token-file: is needed, or --xds-cert",
        "--xds-cert: needs --xds-ca",
        "--xds-cert: needs --xds-key",
    ]
