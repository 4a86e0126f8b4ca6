"""Where the metrics of an endpoint are, and which settings are refused."""

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest

from dataplane.errors import ConfigError
from dataplane.plugin.base import TypedName
from epp.datalayer import certificates
from epp.interfaces.data_layer import CertificateFollower, DataSource
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.sources.model_server_metrics import ModelServerMetricsParams, ModelServerMetricsSource
from tests.epp.datalayer.model_server import Fleet, answer, page
from tests.support.certificates import write_certificate
from tests.support.waiting import until


def source(**params: object) -> ModelServerMetricsSource:
    """A plugin with these parameters, as YAML spells them."""
    decoded = msgspec.convert(params, ModelServerMetricsParams)
    return ModelServerMetricsSource(TypedName("metrics-data-source", "m"), decoded, Handle(EndpointTable()))


def endpoint(address: str = "10.0.0.1", metrics_host: str = "") -> Endpoint:
    """An endpoint at port 8000."""
    return Endpoint(EndpointSpec("a", "default", address, 8000, {}, metrics_host), 0, 0)


def test_defaults_are_those_of_the_field():
    plugin = source()
    assert (plugin.scheme, plugin.path, plugin.interval_s) == ("http", "/metrics", 0.0)
    assert plugin.tls(endpoint()) is None
    assert isinstance(plugin, DataSource)
    assert isinstance(plugin, CertificateFollower)
    assert (plugin.payload, plugin.certificate_files) == ("prometheus-text", ())


@pytest.mark.parametrize(
    ("port", "row", "authority"),
    [
        (0, endpoint(), "10.0.0.1:8000"),
        (9400, endpoint(), "10.0.0.1:9400"),
        (0, endpoint("fd00::1"), "[fd00::1]:8000"),
        (9400, endpoint("fd00::1"), "[fd00::1]:9400"),
        (0, endpoint(metrics_host="10.9.9.9:1234"), "10.9.9.9:1234"),
        (9400, endpoint(metrics_host="10.9.9.9:1234"), "10.9.9.9:1234"),
    ],
)
def test_the_port_parameter_is_for_endpoints_whose_discovery_names_none(
    port: int, row: Endpoint, authority: str
):
    assert source(port=port).authority(row) == authority


def test_interval_is_a_duration():
    assert source(interval="250ms").interval_s == 0.25


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"path": "metrics"}, "path: 'metrics' is not a path; start it with /"),
        ({"path": "/a b"}, "path: '/a b' is not a path"),
        ({"path": "/a\r\nX: y"}, "path: '/a\\r\\nX: y' is not a path"),
        ({"port": 70000}, "port: 70000 is not a port; use 1 to 65535, or 0 for the endpoint's"),
        ({"interval": "5"}, "interval: '5' is not a duration"),
        ({"interval": "-1s"}, "interval: '-1s' is negative"),
        (
            {"caCertPath": "/ca.pem"},
            "caCertPath: has no effect with scheme http; set scheme: https or remove it",
        ),
        (
            {"scheme": "https", "caCertPath": "/no/ca.pem"},
            "caCertPath: /no/ca.pem cannot be read (No such file",
        ),
        (
            {"scheme": "https", "clientCertPath": "/c"},
            "clientKeyPath: clientCertPath and clientKeyPath belong together",
        ),
        (
            {"scheme": "https", "clientKeyPath": "/k"},
            "clientCertPath: clientCertPath and clientKeyPath belong together",
        ),
    ],
)
def test_wrong_parameters_are_errors_at_their_place(params: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        source(**params)
    assert str(caught.value).startswith(message)


def test_a_certificate_file_that_holds_none_is_said(tmp_path: Path):
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"caCertPath: .*ca\.pem does not hold what it should in PEM form"):
        source(scheme="https", caCertPath=str(tmp_path / "ca.pem"))


def test_another_scheme_is_refused():
    with pytest.raises(msgspec.ValidationError, match=r"Invalid enum value 'ftp' - at `\$\.scheme`"):
        source(scheme="ftp")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """TLS of a model server that demands a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("verify", [False, True], ids=["any certificate", "own authority"])
async def test_https_with_client_certificate_is_scraped(
    certificate: tuple[Path, Path], server_tls: ssl.SSLContext, verify: bool
):
    cert, key = map(str, certificate)
    params = {"insecure_skip_verify": not verify, "ca_cert_path": cert if verify else ""}
    fleet = Fleet(scheme="https", client_cert_path=cert, client_key_path=key, **params)
    async with fleet:
        row = fleet.add(await fleet.serve(answer(page()), server_tls))
        await until(lambda: fleet.scrapes(row) >= 3)


async def test_a_server_certificate_nobody_vouches_for_is_refused(
    certificate: tuple[Path, Path], server_tls: ssl.SSLContext
):
    cert, key = map(str, certificate)
    async with Fleet(
        scheme="https", client_cert_path=cert, client_key_path=key, insecure_skip_verify=False
    ) as fleet:
        row = fleet.add(await fleet.serve(answer(page()), server_tls))
        await until(lambda: fleet.errors.poll >= 2)
        assert "TLS with port" in fleet.scraper.problem(row)
        assert fleet.scraper.problem(row).endswith(
            "check scheme, caCertPath and the client certificate of the data source"
        )
        assert fleet.scrapes(row) == 0


@pytest.mark.parametrize(
    ("scheme", "own", "encrypted"),
    [("http", "", False), ("http", "https", True), ("https", "", True), ("https", "http", False)],
)
def test_the_scheme_an_endpoint_names_precedes_the_parameter(scheme: str, own: str, encrypted: bool):
    plugin = source(scheme=scheme)
    row = Endpoint(EndpointSpec("a", "default", "10.0.0.1", 8000, metrics_scheme=own), 0, 0)
    context = plugin.tls(row)
    assert (context is not None) is encrypted
    assert plugin.tls(row) is context


async def test_endpoints_of_one_source_may_differ_in_scheme(certificate: tuple[Path, Path]):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with Fleet() as fleet:
        plain = fleet.add(await fleet.serve(answer(page())))
        encrypted = fleet.add(await fleet.serve(answer(page()), context), "b", metrics_scheme="https")
        await until(lambda: min(fleet.scrapes(plain), fleet.scrapes(encrypted)) >= 2)
        assert fleet.errors.poll == 0


async def test_http_asked_of_an_https_port_fails_with_the_way_out(
    certificate: tuple[Path, Path], server_tls: ssl.SSLContext
):
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with Fleet() as fleet:
        row = fleet.add(await fleet.serve(answer(page()), server_tls))
        await until(lambda: fleet.errors.poll >= 1)
        assert "; " in fleet.scraper.problem(row)
        assert fleet.scrapes(row) == 0


async def test_a_renewed_client_certificate_is_used_by_the_next_connection(
    certificate: tuple[Path, Path],
    server_tls: ssl.SSLContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(certificates, "LOOK_S", 0.02)
    cert, key = write_certificate(tmp_path)
    async with Fleet(scheme="https", client_cert_path=str(cert), client_key_path=str(key)) as fleet:
        row = fleet.add(await fleet.serve(answer(page()), server_tls))
        await until(lambda: fleet.errors.poll >= 2)
        assert fleet.scrapes(row) == 0
        cert.write_text("nonsense")
        await until(lambda: "its new certificates are not used, those there are stay" in caplog.text)
        for new, old in zip(certificate, (cert, key), strict=True):
            old.write_bytes(new.read_bytes())
        await until(lambda: fleet.scrapes(row) >= 1)
