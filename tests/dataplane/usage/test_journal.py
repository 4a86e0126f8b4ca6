"""The journal keeps records over kills, within its cap, and forgets what is delivered."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dataplane.errors import ConfigError
from dataplane.usage.journal import Journal
from dataplane.usage.record import MAX_TEXT, RecordIds, UsageRecord, clean
from dataplane.usage.segment import HEADER_BYTES, Segment
from tests.support.clock import ManualClock
from tests.support.usage import usage_record


def opened(folder: Path, *, segments: int = 4, clock: ManualClock | None = None) -> Journal:
    """A journal whose segments hold three records each."""
    return Journal(folder, max_bytes=segments * 1024, segment_bytes=1024, clock=clock or ManualClock())


def numbers(lines: list[bytes]) -> list[int]:
    return [int(msgspec.json.decode(line, type=UsageRecord).id, 16) for line in lines]


def drained(journal: Journal) -> list[int]:
    """Numbers of all records, delivered one batch after the other."""
    found: list[int] = []
    while (batch := journal.first(2)) is not None:
        segment, lines, offset = batch
        found += numbers(lines)
        journal.deliver(segment, offset)
    return found


def killed(journal: Journal) -> None:
    """As after SIGKILL: nothing is tidied up, but the lock is gone."""
    journal._lock.close()


def test_records_are_read_in_their_order_and_then_gone(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for number in range(8):
        journal.append(usage_record(number))
    assert (journal.written, journal.dropped) == (8, 0)
    assert drained(journal) == list(range(8))
    assert (journal.first(5), journal.pending_bytes) == (None, 0)
    assert len(list(tmp_path.glob("*.usage"))) == 1
    journal.close()
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_a_killed_process_loses_nothing_it_has_appended(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for number in range(8):
        journal.append(usage_record(number))
    segment, lines, offset = journal.first(2) or pytest.fail("nothing")
    journal.deliver(segment, offset)
    killed(journal)
    again = opened(tmp_path)
    again.append(usage_record(8))
    assert numbers(lines) + drained(again) == list(range(9))
    again.close()


def test_half_a_line_is_no_record_and_its_place_is_used_again(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "1.usage", 1024, create=True)
    assert segment.append(b'{"whole":1}')
    segment._map[segment.end : segment.end + 5] = b'{"hal'
    found = Segment(tmp_path / "1.usage", 0, create=False)
    assert found.read(9) == ([b'{"whole":1}'], HEADER_BYTES + 12)
    assert found.append(b"{}")
    assert found.read(9)[0] == [b'{"whole":1}', b"{}"]


def test_an_offset_that_is_no_boundary_means_delivered_again(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "1.usage", 1024, create=True)
    segment.append(b"{}")
    segment.deliver(HEADER_BYTES + 1)
    assert Segment(tmp_path / "1.usage", 0, create=False).read(9)[0] == [b"{}"]


def test_beyond_the_cap_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    journal = opened(tmp_path, segments=2)
    for number in range(20):
        journal.append(usage_record(number))
    kept = drained(journal)
    assert kept == list(range(20))[-len(kept) :]
    assert journal.dropped == 20 - len(kept) > 0
    journal.close()


def test_a_dropped_segment_that_was_being_delivered_is_forgotten(tmp_path: Path) -> None:
    journal = opened(tmp_path, segments=2)
    journal.append(usage_record(0))
    segment, _, offset = journal.first(1) or pytest.fail("nothing")
    for number in range(1, 12):
        journal.append(usage_record(number))
    journal.deliver(segment, offset)
    assert 0 not in drained(journal)
    journal.close()


def test_without_room_records_are_counted_and_the_disk_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    journal = opened(tmp_path, clock=clock)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        journal.append(usage_record(0))
    journal.append(usage_record(1))
    assert (journal.dropped, list(tmp_path.glob("*.usage"))) == (2, [])
    clock.advance(1.0)
    journal.append(usage_record(2))
    assert (journal.written, drained(journal)) == (1, [2])
    journal.close()


def test_a_folder_serves_one_process(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(ConfigError, match=r"--usage-journal: .* another process uses it"):
        opened(tmp_path)
    journal.close()
    opened(tmp_path).close()


def test_files_that_are_no_segments_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "000000000001.usage").write_bytes(b"short")
    (tmp_path / "000000000002.usage").write_bytes(b"x" * 100)
    journal = opened(tmp_path)
    journal.append(usage_record(1))
    assert drained(journal) == [1]
    journal.close()
    assert (tmp_path / "000000000001.usage").read_bytes() == b"short"


def test_ids_are_unique_and_in_order_of_time() -> None:
    now = [1000]
    ids = RecordIds(lambda: now[0], "ab" * 7)
    first, second = ids(), ids()
    now[0] = 1001
    third = ids()
    assert first < second < third
    assert first == "0000000003e8000001" + "ab" * 7
    assert len(RecordIds()()) == 32


def test_texts_of_clients_are_cut_and_cleaned() -> None:
    assert clean("x" * 1000) == "x" * MAX_TEXT
    assert clean("a\x00b\ud800") == "a\ufffdb?"
