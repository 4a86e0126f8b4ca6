"""The last fifteen minutes of every worker, whatever kind of worker it is.

One writer (``controlplane.telemetry.feed``), many readers in other threads; a lock keeps both short. Points
are small; of what a worker says besides only its last word is kept. Everything has a cap, because whoever can
write to Valkey can make up workers: beyond it the one not heard of for longest makes room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

WINDOW_S: Final = 900
MAX_WORKERS: Final = 500
"""Series that are kept, some 250 bytes a second each."""
STALE_S: Final = 5.0
"""A worker that has said nothing for so long does not count towards its group's last second."""


class Said(Protocol):
    """One worker's second."""

    @property
    def at(self) -> float:
        """Since the epoch."""

    @property
    def worker(self) -> str:
        """Its name."""


class Timed(Protocol):
    """What is kept of it."""

    @property
    def at(self) -> int:
        """Since the epoch."""


S = TypeVar("S", bound=Said)
P = TypeVar("P", bound=Timed)


class Series(Generic[S, P]):
    """One worker's."""

    __slots__ = ("last", "number", "points")

    def __init__(self) -> None:
        self.points: deque[P] = deque(maxlen=WINDOW_S)
        self.last: S | None = None
        self.number = 0


class Recent(Generic[S, P]):
    """Written by one thread, read by any. Workers belong to groups: pools, or payload processors."""

    def __init__(
        self, clock: Callable[[], float], group_of: Callable[[S], str], point_of: Callable[[S], P]
    ) -> None:
        self._clock = clock
        self._group_of = group_of
        self._point_of = point_of
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], Series[S, P]] = {}
        self._number = 0

    def add(self, summary: S) -> None:
        """One more second of a worker; an older one than its last is left out."""
        if abs(summary.at - self._clock()) > WINDOW_S:
            return
        with self._lock:
            key = (self._group_of(summary), summary.worker)
            series = self._series.get(key)
            if series is None:
                if len(self._series) >= MAX_WORKERS:
                    del self._series[min(self._series, key=lambda k: self._series[k].number)]
                series = self._series[key] = Series()
            if series.last is not None and summary.at <= series.last.at:
                return
            self._number += 1
            series.number = self._number
            series.last = summary
            series.points.append(self._point_of(summary))

    def changed(self, since: int, group: str = "") -> tuple[int, list[str]]:
        """The number of the last summary, and the groups that have news after the one of number ``since``."""
        with self._lock:
            names = {
                name
                for (name, _), series in self._series.items()
                if series.number > since and group in ("", name)
            }
            return self._number, sorted(names)

    def groups(self) -> list[str]:
        """Names of groups of which something is known."""
        self._forget()
        return self.changed(0)[1]

    def last(self, group: str = "") -> list[S]:
        """The last word of each worker of a group, or of all."""
        with self._lock:
            return [s.last for (name, _), s in self._series.items() if group in ("", name) and s.last]

    def by_second(self, group: str, seconds: int) -> dict[int, list[P]]:
        """What a group's workers said in each of the last seconds, in order of time."""
        after = self._clock() - seconds
        found: dict[int, dict[str, P]] = {}
        with self._lock:
            for (name, worker), series in self._series.items():
                if name == group:
                    for point in series.points:
                        if point.at >= after:
                            found.setdefault(point.at, {})[worker] = point
        return {at: list(found[at].values()) for at in sorted(found)}

    def copied(self, group: str = "") -> dict[str, list[list[P]]]:
        """Every worker's points in order of time, by group; of one group when it is named."""
        with self._lock:
            found: dict[str, list[list[P]]] = {}
            for (name, _), series in self._series.items():
                if group in ("", name):
                    found.setdefault(name, []).append(list(series.points))
            return found

    def heard(self, group: str = "") -> dict[str, list[P]]:
        """The last second of every worker that is heard, by group."""
        now = self._clock()
        found: dict[str, list[P]] = {}
        with self._lock:
            for (name, _), series in self._series.items():
                if group in ("", name) and series.last is not None and now - series.last.at <= STALE_S:
                    found.setdefault(name, []).append(series.points[-1])
        return found

    def is_stale(self, summary: S) -> bool:
        """Whether it is too long ago to count."""
        return self._clock() - summary.at > STALE_S

    def now(self) -> int:
        """The present second."""
        return int(self._clock())

    def _forget(self) -> None:
        """Drop workers of which nothing is left to show."""
        before = self._clock() - WINDOW_S
        with self._lock:
            for key in [k for k, s in self._series.items() if s.last is None or s.last.at < before]:
                del self._series[key]
