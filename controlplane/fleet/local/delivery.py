"""How a picker gets what it is to know. Today as files that it follows; another way has the same two methods.

    <state>/pools/<pool>/endpoints.yaml   --endpoints-file
    <state>/pools/<pool>/objects.yaml     --objects-file

JSON is YAML as well, and much faster to write. Files are replaced whole, and only when they say something
new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from controlplane.fleet.local.wanted import WantedPool
from controlplane.fleet.services import file_document
from dataplane.processes.folder import write_atomically

ENDPOINTS: Final = "endpoints.yaml"
OBJECTS: Final = "objects.yaml"


class Delivery(Protocol):
    """Carries what is wanted of one pool to its picker."""

    def deliver(self, pool: WantedPool, simulated: Sequence[Any]) -> None:
        """Bring the picker up to date. ``simulated`` are entries to list beside the pool's own. May block."""
        ...

    def flags(self) -> list[str]:
        """Flags by which the picker finds what is delivered."""
        ...


class FileDelivery:
    """Files in the pool's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, str] = {}

    def deliver(self, pool: WantedPool, simulated: Sequence[Any]) -> None:
        """Write what differs from the last time. ``OSError`` when the folder cannot be written."""
        document = file_document(pool.resolve, [*simulated, *pool.endpoints])
        self._write(ENDPOINTS, json.dumps(document))
        self._write(OBJECTS, "".join(f"---\n{json.dumps(each)}\n" for each in pool.objects))

    def flags(self) -> list[str]:
        """Both files."""
        return [
            *("--endpoints-file", str(self._folder / ENDPOINTS)),
            *("--objects-file", str(self._folder / OBJECTS)),
        ]

    def _write(self, name: str, text: str) -> None:
        if self._written.get(name) != text:
            write_atomically(self._folder / name, text)
            self._written[name] = text
