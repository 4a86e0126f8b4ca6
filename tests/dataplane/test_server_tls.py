"""Certificates made up, read, refused and reloaded; versions and suites as the flags say."""

import asyncio
import os
import socket
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from dataplane import server_tls as tls
from dataplane.errors import ConfigError
from dataplane.extproc.server import ServerOptions
from dataplane.extproc.transport_metrics import TransportMetrics
from dataplane.server_tls import ServerTls, TlsOptions, self_signed
from tests.dataplane.extproc.http2_client import PREFACE, settings
from tests.dataplane.extproc.running_server import EchoService, Running, running
from tests.support.waiting import PATIENCE_S

SERVICES = EchoService().services


def client_context(alpn: list[str] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def handshake(server: Running, context: ssl.SSLContext) -> tuple[str | None, str | None, str, bytes]:
    """ALPN, TLS version, cipher and certificate (DER) of a connection."""
    with (
        socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE_S) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secure,
    ):
        cipher = secure.cipher()
        assert cipher is not None
        certificate = secure.getpeercert(binary_form=True)
        assert certificate is not None
        return secure.selected_alpn_protocol(), secure.version(), cipher[0], certificate


def serving(options: TlsOptions):
    return running(ServerOptions(host="127.0.0.1", port=0, tls=options), SERVICES)


def write_pair(directory: Path, pair: tuple[bytes, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "tls.crt").write_bytes(pair[0])
    (directory / "tls.key").write_bytes(pair[1])


def write_new_pair(directory: Path) -> bytes:
    """A new pair in the directory; its certificate as DER."""
    pair = self_signed()
    write_pair(directory, pair)
    return ssl.PEM_cert_to_DER_cert(pair[0].decode())


def test_self_signed_certificate_is_for_localhost_and_new_each_time():
    certificate = x509.load_pem_x509_certificate(self_signed()[0])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert self_signed()[0] != self_signed()[0]


def test_http2_is_agreed_on_and_a_client_without_alpn_is_served():
    with serving(TlsOptions()) as server:
        assert handshake(server, client_context(["h2", "http/1.1"]))[0] == "h2"
        assert handshake(server, client_context())[0] is None


def test_certificate_is_read_from_the_path(tmp_path: Path):
    expected = write_new_pair(tmp_path)
    with serving(TlsOptions(cert_path=str(tmp_path))) as server:
        assert handshake(server, client_context(["h2"]))[3] == expected


@pytest.mark.parametrize("version", ["", "VersionTLS12", "VersionTLS11", "VersionTLS10"])
def test_tls_1_2_is_the_least_whatever_the_flag(version: str):
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(TlsOptions(min_version=version)) as server:
        assert handshake(server, old)[1] == "TLSv1.2"


def test_minimum_of_tls_1_3_refuses_1_2():
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(TlsOptions(min_version="VersionTLS13")) as server:
        assert handshake(server, client_context())[1] == "TLSv1.3"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(server, old)


@pytest.mark.parametrize(
    ("suite", "cipher", "key_type"),
    [
        (
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            ec.EllipticCurvePublicKey,
        ),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305", rsa.RSAPublicKey),
    ],
)
def test_suites_of_the_flag_are_used_with_a_key_that_fits(suite: str, cipher: str, key_type: type):
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(TlsOptions(cipher_suites=(suite,))) as server:
        _, _, used, certificate = handshake(server, old)
        assert used == cipher
        assert isinstance(x509.load_der_x509_certificate(certificate).public_key(), key_type)
        assert handshake(server, client_context())[1] == "TLSv1.3"


def test_suites_of_tls_1_3_alone_leave_nothing_for_1_2():
    tls_only = TlsOptions(cipher_suites=("TLS_AES_128_GCM_SHA256",))
    context = ServerTls(tls_only, TransportMetrics()).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_every_suite_the_flag_knows_is_known_to_openssl():
    for suite, openssl in tls._SUITES.items():
        context = ServerTls(TlsOptions(cipher_suites=(suite,)), TransportMetrics()).context
        assert openssl in {cipher["name"] for cipher in context.get_ciphers()}, suite


@pytest.mark.parametrize(
    ("options", "text", "suggestion"),
    [
        (
            TlsOptions(min_version="VersionTLS14"),
            f"--tls-min-version: 'VersionTLS14' is not one of {', '.join(list(tls._VERSIONS)[1:])}",
            "VersionTLS13",
        ),
        (
            TlsOptions(cipher_suites=("TLS_AES_128_GCM_SHA265",)),
            "--tls-cipher-suites: 'TLS_AES_128_GCM_SHA265' is not a known cipher suite",
            "TLS_AES_128_GCM_SHA256",
        ),
    ],
)
def test_flag_that_is_not_understood_is_refused_with_a_suggestion(
    options: TlsOptions, text: str, suggestion: str
):
    with pytest.raises(ConfigError) as caught:
        ServerTls(options, TransportMetrics())
    assert str(caught.value) == f'{text} (did you mean "{suggestion}"?)'


def test_suites_openssl_does_not_have_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(tls._SUITES, "TLS_RSA_WITH_RC4_128_SHA", "RC4-SHA")
    with pytest.raises(ConfigError, match="--tls-cipher-suites: none of these suites is available here"):
        ServerTls(TlsOptions(cipher_suites=("TLS_RSA_WITH_RC4_128_SHA",)), TransportMetrics())


def encrypted(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    key = serialization.load_pem_private_key(pair[1], None)
    how = serialization.BestAvailableEncryption(b"secret")
    return pair[0], key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


BAD_PAIRS = {
    "key of another certificate": (self_signed()[0], self_signed()[1]),
    "no certificate": (b"not PEM", self_signed()[1]),
    "no key": (self_signed()[0], b""),
    "encrypted key": encrypted(self_signed()),
    "too large": (b"x" * (tls.MAX_PEM_BYTES + 1), b""),
}


@pytest.mark.parametrize("name", BAD_PAIRS)
def test_bad_pair_at_the_start_is_refused_by_name(name: str, tmp_path: Path):
    write_pair(tmp_path, BAD_PAIRS[name])
    with pytest.raises(ConfigError) as caught:
        ServerTls(TlsOptions(cert_path=str(tmp_path)), TransportMetrics())
    assert str(caught.value).startswith(f"--cert-path: cannot use {tmp_path}: ")
    assert str(caught.value).endswith("the directory must hold a matching tls.crt and tls.key in PEM form")


def test_missing_file_is_named(tmp_path: Path):
    write_new_pair(tmp_path)
    (tmp_path / "tls.key").unlink()
    with pytest.raises(ConfigError, match=f"cannot use {tmp_path}/tls.key: No such file or directory"):
        ServerTls(TlsOptions(cert_path=str(tmp_path)), TransportMetrics())


def until(server: Running, attribute: str, value: int) -> None:
    """Wait for a counter of the server."""
    deadline = time.monotonic() + PATIENCE_S
    while getattr(server.server.metrics, attribute) < value:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def fast_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "RELOAD_INTERVAL_S", 0.02)


@pytest.mark.usefixtures("fast_reload")
def test_changed_files_are_taken_for_new_connections_and_open_ones_go_on(tmp_path: Path):
    first = write_new_pair(tmp_path)
    with serving(TlsOptions(cert_path=str(tmp_path), reload=True)) as server:
        context = client_context(["h2"])
        with (
            socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE_S) as raw,
            context.wrap_socket(raw) as held,
        ):
            assert held.getpeercert(binary_form=True) == first
            second = write_new_pair(tmp_path)
            until(server, "tls_reloads", 1)
            assert handshake(server, context)[3] == second
            held.sendall(PREFACE + settings())
            assert held.recv(9)[3] == 4


@pytest.mark.usefixtures("fast_reload")
def test_symbolic_link_that_is_swapped_is_a_change(tmp_path: Path):
    """How Kubernetes updates a mounted secret."""
    write_new_pair(tmp_path / "..v1")
    (tmp_path / "..data").symlink_to("..v1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    with serving(TlsOptions(cert_path=str(tmp_path), reload=True)) as server:
        expected = write_new_pair(tmp_path / "..v2")
        (tmp_path / "..data_tmp").symlink_to("..v2")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        until(server, "tls_reloads", 1)
        assert handshake(server, client_context())[3] == expected
        assert server.server.metrics.tls_reload_failures == 0


@pytest.mark.usefixtures("fast_reload")
@pytest.mark.parametrize("name", BAD_PAIRS)
def test_bad_new_pair_keeps_the_old_one_and_a_good_one_is_taken_later(name: str, tmp_path: Path):
    first = write_new_pair(tmp_path / "first")
    write_pair(tmp_path / "bad", BAD_PAIRS[name])
    third = write_new_pair(tmp_path / "third")
    link = tmp_path / "certs"
    link.symlink_to("first")

    def point_at(target: str) -> None:
        (tmp_path / "new").symlink_to(target)
        os.replace(tmp_path / "new", link)

    with serving(TlsOptions(cert_path=str(link), reload=True)) as server:
        point_at("bad")
        until(server, "tls_reload_failures", 1)
        assert handshake(server, client_context())[3] == first
        point_at("third")
        until(server, "tls_reloads", 1)
        assert handshake(server, client_context())[3] == third


@pytest.mark.usefixtures("fast_reload")
def test_files_that_vanish_keep_the_old_pair(tmp_path: Path):
    first = write_new_pair(tmp_path)
    with serving(TlsOptions(cert_path=str(tmp_path), reload=True)) as server:
        (tmp_path / "tls.crt").unlink()
        until(server, "tls_reload_failures", 1)
        assert handshake(server, client_context())[3] == first


async def test_files_are_not_watched_unless_asked(tmp_path: Path):
    write_new_pair(tmp_path)
    before = asyncio.all_tasks()
    ServerTls(TlsOptions(cert_path=str(tmp_path)), TransportMetrics()).start()
    ServerTls(TlsOptions(reload=True), TransportMetrics()).start()
    assert asyncio.all_tasks() == before


def test_pair_is_loaded_where_there_is_no_memory_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving(TlsOptions()) as server:
        assert handshake(server, client_context(["h2"]))[0] == "h2"
    assert list(tmp_path.iterdir()) == []
