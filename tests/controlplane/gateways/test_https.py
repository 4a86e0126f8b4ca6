"""HTTPS of a gateway through a real Envoy: its certificate from the control plane, rotated under traffic."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from controlplane.xds.nodes import SECRET
from dataplane.processes.ports import LOOPBACK
from tests.controlplane.gateways.test_processes import Plant, gateway, plant, pool
from tests.support.certificates import Authority
from tests.support.waiting import PATIENCE_S, wait_until

__all__ = ["plant"]

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def credential(secret: str) -> dict[str, Any]:
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": "ProviderCredential",
        "metadata": {"name": "edge"},
        "spec": {"type": "TLSCertificate", "secret": secret},
    }


def pem(files: tuple[Path, Path]) -> str:
    return "".join(file.read_text() for file in files)


def weak(authority: Authority) -> str:
    """A pair that fits together and that Envoy does not take."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = authority.certify("weak", key).public_bytes(serialization.Encoding.PEM)
    return (chain + key.private_bytes(*form)).decode()


class Client:
    """Asks by HTTPS, with a connection of its own for each request."""

    def __init__(self, port: int, authority: Path) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(authority))

    def shown(self) -> int:
        """Serial number of the certificate that is shown, if it can be trusted; 0 when none is."""
        try:
            with (
                socket.create_connection((LOOPBACK, self._port), 10) as plain,
                self._tls.wrap_socket(plain, server_hostname=LOOPBACK) as secure,
            ):
                found = secure.getpeercert(binary_form=True)
        except (OSError, ssl.SSLError):
            return 0
        assert found is not None
        return x509.load_der_x509_certificate(found).serial_number

    def ask(self) -> int:
        connection = http.client.HTTPSConnection(LOOPBACK, self._port, timeout=PATIENCE_S, context=self._tls)
        try:
            body = json.dumps({"model": "llama", "prompt": "hello", "max_tokens": 1})
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


@contextmanager
def traffic(client: Client) -> Iterator[list[Any]]:
    """What came of requests that follow one another meanwhile."""
    found: list[Any] = []
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            try:
                found.append(client.ask())
            except (OSError, http.client.HTTPException) as error:
                found.append(repr(error))
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        ends.set()
        thread.join()


def serial(files: tuple[Path, Path]) -> int:
    return x509.load_pem_x509_certificate(files[0].read_bytes()).serial_number


def test_certificates_rotate_without_a_failed_request_and_bad_ones_change_nothing(plant: Plant) -> None:
    authority = Authority(plant.folder)
    first, second = authority.issue("first"), authority.issue("second")
    cert, key = map(str, authority.issue("xds"))
    own, private = map(str, authority.issue("envoy-1", "spiffe://here/pointsman/gateway/public/node/envoy-1"))
    shown = ("--xds-ca", str(authority.file), "--xds-cert", own, "--xds-key", private)
    client = Client(plant.port, authority.file)
    with (
        plant.process("fleet", "run-fleet"),
        plant.xds("--tls-cert", cert, "--tls-key", key, "--client-ca", str(authority.file)),
        plant.envoy(*shown),
    ):
        tls = {"credentialRef": {"name": "edge"}}
        plant.apply(credential(pem(first)), gateway(plant.port, tls=tls), pool("a", "llama"))
        wait_until(lambda: client.shown() == serial(first), plant.logs)
        wait_until(lambda: client.ask() == 200, plant.logs)
        assert plant.ask("llama")[0] == 0  # nothing is said in clear
        good = plant.answer(lambda each: each["outcome"] == "ack", SECRET)
        with traffic(client) as answers:
            plant.apply(credential(pem(second)))
            wait_until(lambda: client.shown() == serial(second), plant.logs)
            kept = plant.answer(lambda each: each["version"] != good["version"], SECRET)
            assert kept["outcome"] == "ack"

            for secret, why in (
                (pem((second[0], first[1])), "spec.secret: the key is not that of the first certificate"),
                ("nonsense", "spec.secret: must be PEM"),
            ):
                refusal = plant.command.refusal("apply", "-", text=json.dumps(credential(secret)))
                assert why in refusal
                assert "BEGIN" not in refusal

            plant.apply(credential(weak(authority)))
            refused = plant.answer(lambda each: each["outcome"] == "nack", SECRET)
            assert refused["inUse"] == kept["version"]
            assert "certificate" in refused["message"]
            assert "BEGIN" not in refused["message"]
            assert client.shown() == serial(second)
            plant.apply(credential(pem(first)))
            wait_until(lambda: client.shown() == serial(first), plant.logs)
        assert len(answers) > 20
        assert set(answers) == {200}
        worker = plant.api("workers/envoy-1")
        assert worker["user"] == "certificate spiffe://here/pointsman/gateway/public/node/envoy-1"
