"""Who a certificate says its owner is, and files of TLS that change under a running server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from controlplane.core.roles import Binding, BoundTo, Role
from controlplane.xds.certificates import ServerFiles, certified
from dataplane.errors import ConfigError
from tests.support.certificates import Authority

DOMAIN = "spiffe://cluster.local"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize(
    ("path", "binding"),
    [
        ("pool/llama", Binding(BoundTo.POOL, "llama")),
        ("gateway/public", Binding(BoundTo.GATEWAY, "public")),
        ("processor/by-model/node/i-1", Binding(BoundTo.PROCESSOR, "by-model", "i-1")),
        ("pool/llama-8b.eu/node/host:9002", Binding(BoundTo.POOL, "llama-8b.eu", "host:9002")),
    ],
)
def test_a_name_binds_as_a_token_does(authority: Authority, path: str, binding: Binding) -> None:
    uri = f"{DOMAIN}/pointsman/{path}"
    cert, _ = authority.issue("w", "https://elsewhere/pointsman/pool/other", uri, dns=("w.example",))
    found = certified(cert.read_bytes())
    assert found is not None
    assert (found.actor.name, found.actor.role) == (f"certificate {uri}", Role.WORKER)
    assert (found.actor.binding, found.holds) == (binding, True)


def test_a_certificate_that_names_nothing_of_ours_says_nothing(authority: Authority) -> None:
    cert, _ = authority.issue("w", f"{DOMAIN}/ns/default/sa/pickers")
    assert certified(cert.read_bytes()) is None
    assert certified(authority.file.read_bytes()) is None


@pytest.mark.parametrize(
    "names",
    [
        ("pool/llama", "gateway/public"),
        ("pool/",),
        ("tenant/a",),
        ("pool/Llama",),
        ("pool/llama/node/",),
        ("pool/llama/node/a b",),
        ("pool/llama/more",),
        ("pool/llama/node/a/b",),
    ],
)
def test_a_name_that_makes_no_sense_is_refused(authority: Authority, names: tuple[str, ...]) -> None:
    cert, _ = authority.issue("w", *(f"{DOMAIN}/pointsman/{each}" for each in names))
    with pytest.raises(ConfigError, match="must have one name spiffe://DOMAIN/pointsman"):
        certified(cert.read_bytes())


def test_a_certificate_holds_until_its_time_is_over(authority: Authority) -> None:
    cert, _ = authority.issue("w", f"{DOMAIN}/pointsman/pool/llama", lasts=timedelta(seconds=-1))
    found = certified(cert.read_bytes())
    assert found is not None
    assert not found.holds


def test_files_that_change_are_used_once_they_can_be(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("server")
    files = ServerFiles(str(cert), str(key), str(authority.file))
    files.credentials()
    assert files._renewed() is None
    first = key.read_bytes()
    authority.issue("server")
    assert files._renewed() is not None
    assert files._renewed() is None
    good = key.read_bytes()
    key.write_bytes(first)
    assert (files._renewed(), files._renewed()) == (None, None)
    key.write_bytes(good)
    assert files._renewed() is not None
    cert.unlink()
    assert files._renewed() is None


def test_a_server_does_not_begin_with_files_that_do_not_fit(authority: Authority, tmp_path: Path) -> None:
    cert, key = map(str, authority.issue("server"))
    _, other = map(str, authority.issue("other"))
    empty = tmp_path / "empty"
    empty.write_text("")

    def refusal(*files: str) -> str:
        with pytest.raises(ConfigError) as caught:
            ServerFiles(*files).credentials()
        return str(caught.value)

    assert refusal(cert, other, "") == f"--tls-key {other}: is not the key of the certificate"
    assert refusal(str(empty), key, "") == f"--tls-cert {empty}: holds no certificate"
    assert refusal(cert, str(empty), "") == f"--tls-key {empty}: holds no private key without a password"
    assert refusal(cert, key, str(empty)) == f"--client-ca {empty}: holds no certificate"
