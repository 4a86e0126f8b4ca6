"""One file of the journal: records, one JSON text per line, in a memory map of fixed size.

A record is on its way to the disk as soon as it is copied into the map: the pages belong to the operating
system, so they outlive a process that is killed, and writing costs no system call. (A machine that loses
power loses what was not written back, at most some seconds.) The file is allocated whole when it is made, so
that a full disk is an error then and not a signal later. A line counts when its end is there; what follows
the last end is empty.

    magic, 8 bytes | offset up to which records are delivered, 8 bytes | lines | zeros
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Final

MAGIC: Final = b"PMUSAGE1"
HEADER_BYTES: Final = 16
END_OF_LINE: Final = 10


class Segment:
    """Appended to at its end, delivered from its start. One owner: the event loop's thread."""

    def __init__(self, path: Path, size: int, *, create: bool) -> None:
        """``OSError`` when there is no room or no permission; ``ValueError`` when it is no segment."""
        self.path = path
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                try:
                    os.posix_fallocate(descriptor, 0, size)
                except OSError:
                    path.unlink()
                    raise
            else:
                size = os.fstat(descriptor).st_size
                if size < HEADER_BYTES:
                    raise ValueError("is too short to be a segment")
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.size = size
        if create:
            self._map[: len(MAGIC)] = MAGIC
            self._set_delivered(HEADER_BYTES)
        elif self._map[: len(MAGIC)] != MAGIC:
            self._map.close()
            raise ValueError("does not begin as a segment does")
        self.end = HEADER_BYTES if create else self._find_end()
        self.delivered = self._read_delivered()
        if not create:
            # Half a line, of a process that was killed while it wrote.
            self._map[self.end : min(size, self.end + (64 << 10))] = bytes(
                min(size, self.end + (64 << 10)) - self.end
            )

    @property
    def pending(self) -> int:
        """Bytes that are not delivered."""
        return self.end - self.delivered

    def append(self, line: bytes) -> bool:
        """Add a record, a JSON text without an end of line. False when there is no room."""
        start, end = self.end, self.end + len(line)
        if end >= self.size:
            return False
        self._map[start:end] = line
        self._map[end] = END_OF_LINE
        self.end = end + 1
        return True

    def read(self, count: int) -> tuple[list[bytes], int]:
        """The first records that are not delivered, and the offset behind them."""
        found: list[bytes] = []
        at = self.delivered
        while len(found) < count and at < self.end:
            end = self._map.find(b"\n", at, self.end)
            found.append(self._map[at:end])
            at = end + 1
        return found, at

    def deliver(self, offset: int) -> None:
        """Everything before ``offset`` has arrived and is not read again, in another process either."""
        self.delivered = offset
        self._set_delivered(offset)

    def count_pending(self) -> int:
        """Records that are not delivered."""
        return self._map[self.delivered : self.end].count(b"\n")

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()

    def delete(self) -> None:
        """Remove the file: nothing in it is wanted any more."""
        self._map.close()
        self.path.unlink(missing_ok=True)

    def _find_end(self) -> int:
        """Lines hold no zero byte: the first one is behind the last line."""
        zero = self._map.find(b"\x00", HEADER_BYTES)
        written = self.size if zero < 0 else zero
        return max(HEADER_BYTES, self._map.rfind(b"\n", HEADER_BYTES, written) + 1)

    def _read_delivered(self) -> int:
        offset = int.from_bytes(self._map[8:16], sys.byteorder)
        is_boundary = offset == HEADER_BYTES or (
            HEADER_BYTES < offset <= self.end and self._map[offset - 1] == END_OF_LINE
        )
        # Records may be delivered twice, never not at all.
        return offset if is_boundary else HEADER_BYTES

    def _set_delivered(self, offset: int) -> None:
        # One aligned store: whoever is killed leaves the old offset or the new one.
        with memoryview(self._map) as view, view.cast("Q") as words:
            words[1] = offset
