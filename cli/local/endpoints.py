"""Carries a pool's endpoints from the file the simulator writes to the file Envoy follows.

The picker follows the first file itself. Envoy needs the same endpoints in its own format, because a picked
address must be an endpoint of the pool's cluster. Both files are replaced atomically, so nobody reads half
of one. A file that cannot be read leaves Envoy with the endpoints it has, and is complained about once per
change.
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cli.local.envoy_clusters import endpoint_assignment
from cli.local.plan import PoolPlan

POLL_S = 0.2

FILE_CAP_BYTES = 1024 * 1024

Say = Callable[[str], None]


class Entry(msgspec.Struct):
    """One endpoint of the file, as far as Envoy needs it."""

    address: str
    port: str | int = "8000"


class Document(msgspec.Struct):
    """The file."""

    endpoints: list[Entry] = []


def read_endpoints(path: Path) -> list[tuple[str, int]]:
    """Return (address, port) of each endpoint. Raises `ValueError` or `OSError` for an unusable file."""
    if path.stat().st_size > FILE_CAP_BYTES:
        raise ValueError(f"larger than {FILE_CAP_BYTES} bytes")
    try:
        document = msgspec.convert(yaml.safe_load(path.read_bytes()), Document)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return [(entry.address, int(entry.port)) for entry in document.endpoints]


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step, creating its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f"{path.suffix}.new")
    draft.write_text(text)
    draft.replace(path)


class ClusterFile:
    """Keeps the cluster file of one pool up to date."""

    def __init__(self, pool: PoolPlan, say: Say) -> None:
        self.pool = pool
        self.endpoints: list[tuple[str, int]] = []
        self._say = say
        self._version = 0
        self._seen: Any = None

    def write(self) -> None:
        """Write the endpoints known so far, none at first; Envoy needs the file to exist."""
        self._version += 1
        assignment = endpoint_assignment(self.pool, self.endpoints, self._version)
        write_atomically(self.pool.cluster_file, json.dumps(assignment))

    def refresh(self) -> None:
        """Take over the simulator's file if it has changed since the last look."""
        source = self.pool.endpoints_file
        try:
            seen = fingerprint(source)
            if seen == self._seen:
                return
            self._seen = seen
            endpoints = read_endpoints(source)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._say(
                f"{self.pool.name}: {source} is not usable, keeping {len(self.endpoints)} endpoints: {error}"
            )
            return
        if endpoints != self.endpoints:
            self.endpoints = endpoints
            self.write()

    async def follow(self) -> None:
        """Refresh for ever."""
        while True:
            self.refresh()
            await asyncio.sleep(POLL_S)


def fingerprint(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written or replaced."""
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
