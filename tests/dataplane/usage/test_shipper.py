"""The shipper delivers in order, keeps what has not arrived, and begins with what is left over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import redis.asyncio

from dataplane.usage.journal import Journal
from dataplane.usage.record import FIELD, STREAM
from dataplane.usage.shipper import DeliveryError, Shipper
from dataplane.usage.stream import UsageStream
from tests.support.usage import usage_record
from tests.support.waiting import PATIENCE_S


class Shelf:
    """Takes records, or refuses."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.is_away = False
        self.is_closed = False

    async def add(self, records: Sequence[bytes]) -> None:
        if self.is_away:
            raise DeliveryError("away")
        self.ids += [msgspec.json.decode(record)["id"] for record in records]

    async def close(self) -> None:
        self.is_closed = True


def ids(count: int) -> list[str]:
    return [f"{number:032x}" for number in range(count)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, max_bytes=1 << 20, segment_bytes=4096)


async def test_what_did_not_arrive_stays_and_is_delivered_later(journal: Journal) -> None:
    shelf = Shelf()
    shipper = Shipper(journal, shelf)
    for number in range(3):
        journal.append(usage_record(number))
    shelf.is_away = True
    assert not await shipper.ship()
    assert (shelf.ids, shipper.failures, shipper.shipped) == ([], 1, 0)
    shelf.is_away = False
    assert await shipper.ship()
    assert not await shipper.ship()
    assert (shelf.ids, shipper.shipped, journal.pending_bytes) == (ids(3), 3, 0)
    journal.close()


async def test_the_end_delivers_the_rest_and_closes(journal: Journal) -> None:
    shelf = Shelf()
    shipper = Shipper(journal, shelf)
    shipper.start()
    for number in range(40):
        journal.append(usage_record(number))
    await shipper.stop()
    await shipper.stop()
    journal.close()
    assert (shelf.ids, shelf.is_closed) == (ids(40), True)


async def test_records_reach_valkey_in_order(journal: Journal, valkey: str) -> None:
    client = redis.asyncio.Redis.from_url(valkey, single_connection_client=True)
    shipper = Shipper(journal, UsageStream(client))
    for number in range(2500):
        journal.append(usage_record(number))
    while await shipper.ship():
        pass
    entries = await client.xrange(STREAM)
    assert [msgspec.json.decode(fields[FIELD])["id"] for _, fields in entries] == ids(2500)
    await client.aclose()
    journal.close()


async def test_a_full_stream_takes_nothing(valkey: str) -> None:
    client = redis.asyncio.Redis.from_url(valkey, single_connection_client=True)
    stream = UsageStream(client, max_entries=2)
    await stream.add([b"{}", b"{}"])
    with pytest.raises(DeliveryError, match="2 records wait in Valkey"):
        await stream.add([b"{}"])
    assert await client.xlen(STREAM) == 2
    await client.aclose()


async def test_without_a_server_nothing_is_lost(journal: Journal) -> None:
    client = redis.asyncio.Redis.from_url("redis://127.0.0.1:1/0", single_connection_client=True)
    shipper = Shipper(journal, UsageStream(client))
    journal.append(usage_record(1))
    assert not await shipper.ship()
    assert journal.pending_bytes > 0
    await asyncio.wait_for(shipper.stop(), PATIENCE_S)
    await client.aclose()
    journal.close()
