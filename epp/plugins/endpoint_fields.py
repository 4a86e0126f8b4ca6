"""The fields an entry of an endpoints file may have, checked one by one: a value, or a ``ConfigError``.

The path of an error is the field; whoever reads the entry places it below the entry's own.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from dataplane.errors import ConfigError
from dataplane.resolver import is_one_server

MAX_NAME: Final = 253
"""Characters of a name, namespace, label key or label value."""
MAX_LABELS: Final = 64
MAX_ANNOTATION: Final = 4096
"""Characters of an annotation's value."""


def read_name(value: object, field: str) -> str:
    """A name or namespace."""
    if value is None:
        raise ConfigError("is missing", path=field)
    if not isinstance(value, str):
        raise ConfigError(f"{shown(value)} is not text; put it in quotes", path=field)
    if not 0 < len(value) <= MAX_NAME or not value.isprintable() or "/" in value:
        raise ConfigError(
            f"{shown(value)} must be 1 to {MAX_NAME} printable characters without a slash", path=field
        )
    return value


def read_address(value: object, *, otherwise: str = "") -> str:
    """An IP address in its shortest spelling; ``otherwise`` ends the complaint about anything else."""
    if value is None:
        raise ConfigError("is missing; give the IP address of the model server", path="address")
    try:
        address = ipaddress.ip_address(value) if isinstance(value, str) and "%" not in value else None
    except ValueError:
        address = None
    if address is None:
        raise ConfigError(f"{shown(value)} is not an IPv4 or IPv6 address{otherwise}", path="address")
    if not is_one_server(address):
        raise ConfigError(f"{shown(value)} is not the address of one server", path="address")
    return str(address)


def read_port(value: object, field: str = "port") -> int:
    """A port as a number or as text."""
    port = 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        port = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        port = value
    if not 0 < port <= 65535:
        raise ConfigError(f"{shown(value)} is not a port; use 1 to 65535", path=field)
    return port


def read_labels(value: object, field: str = "labels", longest: int = MAX_NAME) -> dict[str, str]:
    """A mapping of text to text; ``longest`` is the most characters of a value."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{shown(value)} is not a mapping of text to text", path=field)
    if len(value) > MAX_LABELS:
        raise ConfigError(f"has {len(value)} entries, the most is {MAX_LABELS}", path=field)
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            wrong = text if isinstance(key, str) else key
            raise ConfigError(f"{shown(wrong)} is not text; put it in quotes", path=f"{field}.{_key(key)}")
        if len(key) > MAX_NAME:
            raise ConfigError(f"is longer than {MAX_NAME} characters", path=f"{field}.{_key(key)}")
        if len(text) > longest:
            raise ConfigError(f"is longer than {longest} characters", path=f"{field}.{_key(key)}")
    return dict(value)


def _key(key: object) -> str:
    """A label key as it may stand in a path."""
    return key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else shown(key)


def shown(value: object) -> str:
    """A value as it may stand in a message: text cut short, everything that can be large by its kind only."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:60]}...")
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return str(value).lower() if isinstance(value, bool) else str(value)
    kinds = {dict: "a mapping", list: "a list", int: "a huge number", type(None): "an empty value"}
    return kinds.get(type(value), f"a {type(value).__name__}")
