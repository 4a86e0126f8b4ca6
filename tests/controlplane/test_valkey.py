"""Valkey's address in all its spellings, and the clients made from it."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane import environment
from controlplane import valkey as bus
from dataplane.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("", ""),
        (" redis://h:1/0 ", "redis://h:1/0"),
        ("valkey://h:1/0", "redis://h:1/0"),
        ("valkeys://:secret@h:1", "rediss://:secret@h:1"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
    ],
)
def test_every_spelling_of_an_address_is_known(
    monkeypatch: pytest.MonkeyPatch, given: str, known: str
) -> None:
    monkeypatch.setenv("VALKEY_URL", given)
    assert environment.valkey_url() == known


@pytest.mark.parametrize("given", ["localhost:6379", "http://:secret@h", "redis://"])
def test_what_is_no_address_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("VALKEY_URL", given)
    with pytest.raises(ConfigError, match="VALKEY_URL") as caught:
        environment.valkey_url()
    assert "secret" not in str(caught.value)


def test_without_an_address_there_is_no_client(settings: Any) -> None:
    settings.VALKEY_URL = ""
    assert not bus.is_configured()
    with pytest.raises(ConfigError, match="VALKEY_URL: is not set; name a Valkey server"):
        bus.client()


def test_a_client_talks_to_the_server(settings: Any, valkey: str) -> None:
    settings.VALKEY_URL = valkey
    with bus.client() as client:
        client.set("key", "value")
        assert client.get("key") == b"value"


async def test_an_asynchronous_client_talks_to_the_server(settings: Any, valkey: str) -> None:
    settings.VALKEY_URL = valkey
    client = bus.async_client()
    assert await client.ping()
    await client.aclose()
