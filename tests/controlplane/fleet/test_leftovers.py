"""Usage of deleted pools is delivered, that of living ones is left to their pickers."""

from __future__ import annotations

from pathlib import Path

import redis

from controlplane.fleet.local.leftovers import deliver, journal_of
from dataplane.usage.journal import Journal
from dataplane.usage.record import STREAM
from tests.support.usage import usage_record


def left_behind(pool_folder: Path, count: int) -> Path:
    folder = journal_of(pool_folder)
    journal = Journal(folder, max_bytes=4 << 20)
    for number in range(count):
        journal.append(usage_record(number))
    journal.close()
    return folder


async def test_records_of_pools_that_are_gone_are_delivered(tmp_path: Path, valkey: str) -> None:
    gone = left_behind(tmp_path / "pools/gone", 3)
    kept = left_behind(tmp_path / "pools/kept", 2)
    (tmp_path / "pools/kept").mkdir(parents=True)
    used = Journal(left_behind(tmp_path / "pools/ending", 4), max_bytes=4 << 20)
    assert await deliver(tmp_path, valkey) == 3
    assert (list(gone.glob("*.usage")), len(list(kept.glob("*.usage")))) == ([], 1)
    used.close()
    assert await deliver(tmp_path, valkey) == 4
    assert await deliver(tmp_path, valkey) == 0
    with redis.Redis.from_url(valkey) as client:
        assert client.xlen(STREAM) == 7


async def test_while_valkey_is_away_everything_stays(tmp_path: Path) -> None:
    gone = left_behind(tmp_path / "pools/gone", 3)
    assert await deliver(tmp_path, "redis://127.0.0.1:1/0") == 0
    assert len(list(gone.glob("*.usage"))) == 1
    assert await deliver(tmp_path / "nothing", "redis://127.0.0.1:1/0") == 0
