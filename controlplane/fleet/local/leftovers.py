"""Delivers usage that pickers of deleted pools have left behind.

A pool that is deleted while Valkey is away leaves records in its journal, which lies beside the pools'
folders and outlives them. As long as a pool has a folder its journal is its picker's.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from dataplane import valkey
from dataplane.errors import ConfigError
from dataplane.usage.journal import SUFFIX, Journal
from dataplane.usage.shipper import Shipper

LOOK_S: Final = 10.0
MAX_BYTES: Final = 1 << 40
"""No cap: nothing is added."""


def journal_of(pool_folder: Path) -> Path:
    """Where the picker of a pool keeps its usage."""
    return pool_folder.parents[1] / "usage" / pool_folder.name


async def follow(folder: Path) -> None:
    """Look again and again, until cancelled. Nothing without an address of Valkey."""
    url = valkey.address(os.environ.get(valkey.VARIABLE, ""), valkey.VARIABLE)
    while url:
        await deliver(folder, url)
        await asyncio.sleep(LOOK_S)


async def deliver(folder: Path, url: str) -> int:
    """Everything of pools that are gone, as far as Valkey takes it; how many records that were."""
    from dataplane.usage.stream import UsageStream

    delivered = 0
    for left in sorted((folder / "usage").glob("*")):
        if (folder / "pools" / left.name).exists() or not any(left.glob(f"*{SUFFIX}")):
            continue
        try:
            journal = Journal(left, max_bytes=MAX_BYTES)
        except ConfigError:
            continue  # its picker is still ending
        destination = UsageStream(valkey.connect(url, valkey.VARIABLE))
        shipper = Shipper(journal, destination)
        try:
            while await shipper.ship():
                pass
        finally:
            delivered += shipper.shipped
            await destination.close()
            journal.close()
    return delivered
