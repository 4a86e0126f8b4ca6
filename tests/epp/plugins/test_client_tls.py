"""A context that follows its files."""

from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from epp.plugins.client_tls import ClientTls, TlsParams, client_tls
from tests.support.certificates import write_certificate


@pytest.fixture
def params(tmp_path: Path) -> TlsParams:
    """An own authority and a client certificate."""
    cert, key = map(str, write_certificate(tmp_path))
    return TlsParams(
        scheme="https",
        insecure_skip_verify=False,
        ca_cert_path=cert,
        client_cert_path=cert,
        client_key_path=key,
    )


def test_the_context_stays_as_long_as_the_files_do(params: TlsParams):
    tls = ClientTls(params)
    first = tls.context
    assert [tls.renew(), tls.renew()] == [False, False]
    assert tls.context is first


def test_changed_files_are_read_once_they_look_the_same_twice(params: TlsParams, tmp_path: Path):
    tls = ClientTls(params)
    first = tls.context
    authorities = first.get_ca_certs()
    write_certificate(tmp_path)
    assert [tls.renew(), tls.renew(), tls.renew()] == [False, True, False]
    assert tls.context is not first
    assert tls.context.get_ca_certs() != authorities


def test_files_that_cannot_be_used_change_nothing_and_are_said_once(params: TlsParams, tmp_path: Path):
    tls = ClientTls(params)
    first = tls.context
    (tmp_path / "tls.crt").unlink()
    assert not tls.renew()
    with pytest.raises(ConfigError, match=r"caCertPath: .*tls\.crt cannot be read"):
        tls.renew()
    assert not tls.renew()
    assert tls.context is first
    write_certificate(tmp_path)
    assert [tls.renew(), tls.renew()] == [False, True]


def test_there_is_none_for_http():
    assert client_tls(TlsParams()) is None
    with pytest.raises(ConfigError, match="caCertPath: has no effect with scheme http"):
        client_tls(TlsParams(ca_cert_path="x"))
