"""Where the control plane finds its settings: environment variables, and files it makes for itself once.

A first start needs nothing. What is secret and not given is drawn at random and kept in a file that only the
owner may read, so that the next start finds the same.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dataplane import valkey
from dataplane.errors import ConfigError

STATE: Final = "POINTSMAN_STATE"
SECRET_KEY: Final = "POINTSMAN_SECRET_KEY"  # noqa: S105 - the variable's name
HOSTS: Final = "POINTSMAN_HOSTS"
DEBUG: Final = "POINTSMAN_DEBUG"
ENCRYPTION_KEYS: Final = "POINTSMAN_ENCRYPTION_KEYS"
DATABASE_URL: Final = "DATABASE_URL"
BEHIND_PROXY: Final = "POINTSMAN_BEHIND_PROXY"
TRUSTED_PROXIES: Final = "POINTSMAN_TRUSTED_PROXIES"
MAX_PROXIES: Final = 16

DEFAULT_STATE: Final = ".state/controlplane"
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR
MIN_SECRET_CHARACTERS: Final = 32
USAGE_DAYS: Final = {"records": 30, "hourly": 400, "daily": 3650}
"""How long usage is kept unless ``POINTSMAN_USAGE_DAYS_<WHAT>`` says otherwise."""
MAX_USAGE_DAYS: Final = 36_500


def state_folder() -> Path:
    """Folder of the database, if it is SQLite, and of secrets; made if it is not there."""
    folder = Path(os.environ.get(STATE) or DEFAULT_STATE).absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def secret_key(folder: Path) -> str:
    """What signs sessions. ``ConfigError`` when the one given is too short to be a secret."""
    given = os.environ.get(SECRET_KEY)
    if given is None:
        return _kept(folder / "secret-key")
    if len(given) < MIN_SECRET_CHARACTERS:
        raise ConfigError(f"is shorter than {MIN_SECRET_CHARACTERS} characters", path=SECRET_KEY)
    return given


def encryption_keys() -> list[str]:
    """Keys of secrets at rest, the present one first; none when a file of the state folder has them."""
    return [key for part in os.environ.get(ENCRYPTION_KEYS, "").split(",") if (key := part.strip())]


def allowed_hosts() -> list[str]:
    """Names under which clients may reach the control plane."""
    given = os.environ.get(HOSTS, "")
    return [host for part in given.split(",") if (host := part.strip())] or list(LOOPBACK)


def is_debug() -> bool:
    """Whether tracebacks are shown to everybody; for development alone."""
    return _is_on(DEBUG)


def is_public(hosts: Sequence[str]) -> bool:
    """Whether others than this machine may call: then only over HTTPS."""
    return not set(hosts) <= set(LOOPBACK)


def is_behind_proxy() -> bool:
    """Whether a proxy ends TLS and sets ``X-Forwarded-Proto``, whatever its clients send."""
    return _is_on(BEHIND_PROXY)


def trusted_proxies() -> int:
    """How many proxies, one behind another, append the client they see to ``X-Forwarded-For``."""
    text = os.environ.get(TRUSTED_PROXIES) or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 3 and int(text) <= MAX_PROXIES):
        raise ConfigError(f"must be a number of proxies from 0 to {MAX_PROXIES}", path=TRUSTED_PROXIES)
    return int(text)


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "yes"}


def database_url(folder: Path) -> str:
    """A database in a file, unless another one is named."""
    return os.environ.get(DATABASE_URL) or f"sqlite:///{folder / 'database.sqlite3'}"


def valkey_url() -> str:
    """Address of Valkey, empty when there is none. ``ConfigError`` when it is not one."""
    return valkey.address(os.environ.get(valkey.VARIABLE, ""), valkey.VARIABLE)


def usage_days() -> dict[str, int]:
    """Days that usage is kept: its records, their totals by the hour, and by the day."""
    found = {}
    for what, default in USAGE_DAYS.items():
        name = f"POINTSMAN_USAGE_DAYS_{what.upper()}"
        text = os.environ.get(name) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) <= MAX_USAGE_DAYS):
            raise ConfigError(f"must be a number of days from 1 to {MAX_USAGE_DAYS}", path=name)
        found[what] = int(text)
    return found


def _kept(file: Path) -> str:
    """The secret in a file; drawn and written by whoever comes first."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    except FileExistsError:
        found = file.read_text().strip()
        if len(found) < MIN_SECRET_CHARACTERS:
            raise ConfigError("holds no secret; delete it to have one made", path=str(file)) from None
        return found
    drawn = secrets.token_urlsafe(48)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(drawn)
    return drawn
