"""Valkey: the only place that reads its address and makes its clients.

One address (``VALKEY_URL``) serves as the broker of tasks, the channel layer of websockets and the bus on
which workers send usage and telemetry. Without it the API, the fleet runner and the ADS server work all the
same; what needs Valkey says so.
"""

from __future__ import annotations

from typing import Final

import redis
import redis.asyncio
from django.conf import settings

from dataplane.errors import ConfigError

CONNECT_TIMEOUT_S: Final = 2.0
CALL_TIMEOUT_S: Final = 10.0
"""Longer than any blocking read asks for."""
HEALTH_CHECK_S: Final = 15

NOT_CONFIGURED: Final = "is not set; name a Valkey server, such as redis://127.0.0.1:6379/0"

Unavailable = redis.RedisError
"""What a call raises when Valkey is away or refuses."""


def is_configured() -> bool:
    """Whether an address is known; nothing is said of whether anybody answers there."""
    return bool(settings.VALKEY_URL)


def url() -> str:
    """The address. ``ConfigError`` when there is none."""
    if not settings.VALKEY_URL:
        raise ConfigError(NOT_CONFIGURED, path="VALKEY_URL")
    return str(settings.VALKEY_URL)


def client(address: str = "") -> redis.Redis:
    """A client with a pool of its own, for threads; connects when first used. Close it.

    Without an address it is for the configured one.
    """
    return redis.Redis.from_url(
        address or url(),
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=CALL_TIMEOUT_S,
        health_check_interval=HEALTH_CHECK_S,
    )


def async_client() -> redis.asyncio.Redis:
    """The same for an event loop; ``await client.aclose()`` ends it."""
    return redis.asyncio.Redis.from_url(
        url(),
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=CALL_TIMEOUT_S,
        health_check_interval=HEALTH_CHECK_S,
    )
