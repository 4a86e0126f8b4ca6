"""Valkey as workers and the control plane reach it: one spelling of its address, one way to connect.

The client is loaded when there is an address and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dataplane.errors import ConfigError

if TYPE_CHECKING:
    import redis.asyncio

VARIABLE: Final = "VALKEY_URL"
"""Names the address in the environment."""
SCHEMES: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
"""Schemes of an address -> as the client knows them."""

CONNECT_TIMEOUT_S: Final = 2.0
CALL_TIMEOUT_S: Final = 10.0


def address(text: str, path: str) -> str:
    """An address as the client knows it, empty for an empty one. ``ConfigError`` says it of ``path``."""
    text = text.strip()
    scheme, mark, rest = text.partition("://")
    if text and (not mark or not rest or scheme not in SCHEMES):
        # The address may hold a password and is not repeated.
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ConfigError(f"is no address of a Valkey server; it begins with one of {known}", path=path)
    return f"{SCHEMES[scheme]}://{rest}" if text else ""


def without_password(url: str) -> str:
    """An address that may be shown."""
    head, at, _ = urlsplit(url).netloc.rpartition("@")
    return url.replace(f"{head}{at}", "***@", 1) if at else url


def connect(url: str, path: str) -> redis.asyncio.Redis:
    """A client with one connection, made when first used. ``ConfigError`` when it cannot be loaded."""
    try:
        import redis.asyncio
    except ImportError:
        raise ConfigError("needs the package redis (pip install pointsman[valkey])", path=path) from None
    try:
        return redis.asyncio.Redis.from_url(
            url,
            single_connection_client=True,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=CALL_TIMEOUT_S,
        )
    except ValueError as error:
        raise ConfigError(f"is no address of a Valkey server: {error}", path=path) from None
