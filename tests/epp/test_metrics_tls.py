"""The metrics port over TLS: who is let in, what is refused at the start, and renewed certificates."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from dataplane.errors import ConfigError
from epp.app import Picker
from epp.options import parse_args
from tests.support.certificates import write_certificate

pytestmark = pytest.mark.integration


def picker(folder: Path, *flags: str) -> Picker:
    """One without endpoints, with these flags."""
    endpoints = folder / "endpoints.yaml"
    endpoints.write_text("endpoints: []\n")
    ports = ("--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0")
    return Picker(parse_args(["--host", "127.0.0.1", *ports, "--endpoints-file", str(endpoints), *flags]))


def folder_with_certificate(folder: Path, name: str) -> Path:
    """A new folder with tls.crt and tls.key."""
    made = folder / name
    made.mkdir()
    write_certificate(made)
    return made


def trusting(server: Path, client: Path | None = None) -> ssl.SSLContext:
    """A client that trusts the server's certificate and may show one of its own."""
    context = ssl.create_default_context(cafile=str(server / "tls.crt"))
    if client is not None:
        context.load_cert_chain(client / "tls.crt", client / "tls.key")
    return context


async def status(picker: Picker, context: ssl.SSLContext | bool, scheme: str = "https") -> int:
    """Of the health page."""
    url = f"{scheme}://127.0.0.1:{picker.admin.port}/healthz"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        return answer.status


async def test_pages_are_shown_over_tls_alone(tmp_path: Path) -> None:
    server = folder_with_certificate(tmp_path, "server")
    running = picker(tmp_path, "--metrics-cert-dir", str(server))
    await running.start()
    try:
        assert await status(running, trusting(server)) == 200
        with pytest.raises(aiohttp.ClientError):
            await status(running, True, scheme="http")
    finally:
        await running.stop()


async def test_a_client_needs_a_certificate_of_the_given_authorities(tmp_path: Path) -> None:
    server, known, other = (folder_with_certificate(tmp_path, name) for name in ("server", "known", "other"))
    flags = ("--metrics-cert-dir", str(server), "--metrics-client-ca-file", str(known / "tls.crt"))
    running = picker(tmp_path, *flags)
    await running.start()
    try:
        assert await status(running, trusting(server, known)) == 200
        for refused in (trusting(server), trusting(server, other)):
            with pytest.raises(aiohttp.ClientError):
                await status(running, refused)
    finally:
        await running.stop()


async def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataplane.server_tls.RELOAD_INTERVAL_S", 0.02)
    server = folder_with_certificate(tmp_path, "server")
    running = picker(tmp_path, "--metrics-cert-dir", str(server))
    await running.start()
    try:
        old = trusting(server)
        (server / "tls.crt").write_text("no certificate")
        while not running.admin.tls_reload_failures:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        assert await status(running, old) == 200
        write_certificate(server)
        while not running.admin.tls_reloads:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        assert await status(running, trusting(server)) == 200
        with pytest.raises(aiohttp.ClientError):
            await status(running, old)
    finally:
        await running.stop()


@pytest.mark.parametrize("missing", ["certificate", "authorities"])
async def test_files_that_cannot_be_used_are_named_by_their_flag(tmp_path: Path, missing: str) -> None:
    server = folder_with_certificate(tmp_path, "server")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tls.crt").write_text("nothing")
    if missing == "certificate":
        flags, named = ["--metrics-cert-dir", str(broken)], "--metrics-cert-dir: cannot use "
    else:
        flags = ["--metrics-cert-dir", str(server), "--metrics-client-ca-file", str(broken / "tls.crt")]
        named = "--metrics-client-ca-file: cannot use "
    failing = picker(tmp_path, *flags)
    with pytest.raises(ConfigError) as caught:
        await failing.start()
    await failing.stop()
    assert str(caught.value).startswith(named)
