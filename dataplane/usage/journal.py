"""The journal: records on disk from the moment a request is over until Valkey has them.

A folder of segments in the order of their names, of one process at a time. The last segment is written to,
the first one is delivered from; a segment whose records are all delivered is deleted. The folder has a cap:
when a new segment would exceed it, the oldest one is dropped, and its records that nobody got are counted.
Without room on the disk new records are dropped and counted. No request fails for either.

Owned by the event loop's thread. Appending copies a few hundred bytes; making a segment is a handful of
system calls, once in thousands of records.
"""

from __future__ import annotations

import fcntl
import logging
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from dataplane.clock import SYSTEM_CLOCK, Clock
from dataplane.errors import ConfigError
from dataplane.usage.record import UsageRecord
from dataplane.usage.segment import HEADER_BYTES, Segment

log = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 1 << 20
SUFFIX: Final = ".usage"
LOCK: Final = "lock"
RETRY_S: Final = 1.0
"""How long after a segment could not be made the next record tries again."""


class Journal:
    """Appended to by requests, emptied by a shipper."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``ConfigError`` when the folder cannot be used, or another process uses it."""
        self.written = 0
        self.dropped = 0
        """Records nobody got: the cap was reached, or there was no room on the disk."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._max_segments = max(2, max_bytes // segment_bytes)
        self._clock = clock
        self._encode = msgspec.json.Encoder().encode
        self._retry_at = float("-inf")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = (folder / LOCK).open("a")
        except OSError as error:
            raise _unusable(folder, error.strerror or str(error)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise _unusable(folder, "another process uses it; give each its own folder") from None
        self._number = 0
        self._segments: deque[Segment] = deque()
        self._open_leftovers()
        self._current: Segment | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of records nobody has yet."""
        return sum(segment.pending for segment in self._segments)

    def append(self, record: UsageRecord) -> None:
        """Keep a record; it survives this process from here on."""
        line = self._encode(record)
        current = self._current
        if (current is not None and current.append(line)) or self._append_to_new(line):
            self.written += 1
        else:
            self.dropped += 1

    def first(self, count: int) -> tuple[Segment, list[bytes], int] | None:
        """The oldest records nobody has yet: their segment, they, and the offset behind them."""
        while self._segments:
            segment = self._segments[0]
            if segment.pending:
                return segment, *segment.read(count)
            if segment is self._current:
                return None
            self._segments.popleft().delete()
        return None

    def deliver(self, segment: Segment, offset: int) -> None:
        """What was read up to ``offset`` has arrived."""
        if segment in self._segments:  # it may have been dropped meanwhile
            segment.deliver(offset)

    def close(self) -> None:
        """Let go of the folder; what is delivered leaves no file."""
        self._current = None
        self.first(0)
        while self._segments:
            self._segments.popleft().close()
        self._lock.close()

    def _append_to_new(self, line: bytes) -> bool:
        if self._clock() < self._retry_at or HEADER_BYTES + len(line) >= self._segment_bytes:
            return False
        while len(self._segments) >= self._max_segments:
            oldest = self._segments.popleft()
            lost = oldest.count_pending()
            self.dropped += lost
            oldest.delete()
            if lost:
                log.error("the usage journal %s is full: %d records are lost", self._folder, lost)
        self._number += 1
        path = self._folder / f"{self._number:012d}{SUFFIX}"
        try:
            self._current = Segment(path, self._segment_bytes, create=True)
        except OSError as error:
            self._current = None
            self._retry_at = self._clock() + RETRY_S
            log.error("usage is not recorded: %s: %s", path, error.strerror)
            return False
        self._segments.append(self._current)
        return self._current.append(line)

    def _open_leftovers(self) -> None:
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path.stem.isascii() and path.stem.isdigit():
                self._number = max(self._number, int(path.stem))
            try:
                self._segments.append(Segment(path, 0, create=False))
            except OSError as error:
                raise _unusable(path, error.strerror or str(error)) from None
            except ValueError as error:
                log.warning("%s %s and is left alone", path, error)


def _unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path} cannot be used: {reason}", path="--usage-journal")
