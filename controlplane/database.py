"""Which database the control plane uses, and how its connections behave.

A server that is killed or goes away without a word costs what was asked of it at that moment: connections are
looked at before they are used again, and one that hangs is given up within seconds.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path
from typing import Any, Final

import dj_database_url
from django.db import InterfaceError, OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from dataplane.errors import ConfigError

SQLITE: Final = "django.db.backends.sqlite3"
POSTGRESQL: Final = "django.db.backends.postgresql"
SQLITE_VENDOR: Final = "sqlite"
IN_MEMORY: Final = (":memory:", "file:")
"""How the names begin of SQLite's databases that are no files."""
KEPT_S: Final = 60
"""How long a connection is used again."""

_AWAY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL")

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # Writers wait for one another instead of failing, and readers do not wait for writers.
    SQLITE: {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
    POSTGRESQL: {
        "connect_timeout": 5,
        "keepalives_idle": 5,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": 15_000,
    },
}

_INIT: Final = "run 'pointsman controlplane init' first, and see POINTSMAN_STATE and DATABASE_URL"


def of_url(url: str, path: str) -> dict[str, Any]:
    """Django's settings of the database at ``url``; what its query says goes before what is said here.

    ``ConfigError`` at ``path`` for what is no address of SQLite or PostgreSQL; it never tells the address,
    which may hold a password.
    """
    scheme = url.partition(":")[0]
    try:
        found: dict[str, Any] = dict(dj_database_url.parse(url, conn_max_age=KEPT_S, conn_health_checks=True))
    except ValueError:  # the errors of dj_database_url are ValueErrors
        found = {}
    options = _OPTIONS.get(found.get("ENGINE", ""))
    if options is None:
        raise ConfigError(
            "is no address of a database: use postgres://user:password@host/name or sqlite:///path, "
            "with %XX for characters that mean something in an address",
            path=path,
        )
    if found["ENGINE"] == POSTGRESQL and importlib.util.find_spec("psycopg") is None:
        raise ConfigError(
            f"{scheme}:// needs psycopg, which is not installed; pip install 'pointsman[postgres]'", path=path
        )
    found["OPTIONS"] = {**options, **found.get("OPTIONS", {})}
    return found


def is_away(error: BaseException) -> bool:
    """Whether it says that the database cannot be asked now, and not that it was asked wrongly."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.OperationalError):  # it says so of tables that are not there, too
        return cause.sqlite_errorname.startswith(_AWAY)
    return isinstance(error, OperationalError | InterfaceError)


def require_current() -> None:
    """``ConfigError`` unless the database has been made, and by no older release than this.

    One that is away is let pass: what runs waits for it, and says so. A file of SQLite that is not there is
    not made by looking.
    """
    file = Path(str(connection.settings_dict["NAME"]))
    if connection.vendor == SQLITE_VENDOR and not str(file).startswith(IN_MEMORY):
        if not file.parent.exists():  # a disk that is not mounted
            return
        if not file.exists():
            raise ConfigError(f"there is no database yet at {file}; {_INIT}")
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except OperationalError as error:
        if not is_away(error):
            raise
        return
    finally:
        connection.close()
    if missing:
        first = missing[0][0]
        raise ConfigError(
            f"the database lacks {len(missing)} changes of this release, from {first.app_label} {first.name} "
            f"on; {_INIT}"
        )
