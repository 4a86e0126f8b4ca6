"""Spreads periodic work over its interval, so that a hundred endpoints are not scraped in one burst.

The interval is cut into slices of about five milliseconds, and each item belongs to one slice. Waking up
costs more than one item's work, so slices are opened one by one, each for a handful of items, far from those
that are open already; once all are open, an item joins the emptiest. One timer serves all slices that hold
something. A late timer skips the rounds it missed instead of repeating them. An item does not wait for its
slice to be served for the first time: newcomers are served a handful at a time as soon as there are any.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

SLICE_S: Final = 0.005
MAX_SLICES: Final = 64
HANDFUL: Final = 8
"""Items per open slice before another one is opened."""
EARLY_S: Final = 0.001
"""Timers of the event loop have millisecond resolution and may fire this much before their time."""

T = TypeVar("T")


class Slices(Generic[T]):
    """Which items are due when; time is given, not read."""

    def __init__(self, interval_s: float) -> None:
        count = max(1, min(MAX_SLICES, round(interval_s / SLICE_S)))
        self.width_s = interval_s / count
        self.items: list[dict[T, None]] = [{} for _ in range(count)]
        self._order = _spread(count)
        self._home: dict[T, int] = {}
        self._next = 0
        """Index of the first slice not served yet, counted from time 0 without wrapping."""

    def __len__(self) -> int:
        return len(self._home)

    def add(self, item: T) -> None:
        """Give ``item`` its place in the round."""
        opened = self._order[: len(self._home) // HANDFUL + 1]
        slot = min(opened, key=lambda i: len(self.items[i]))
        self.items[slot][item] = None
        self._home[item] = slot

    def discard(self, item: T) -> None:
        """Take ``item`` out of the round, if it is in it."""
        slot = self._home.pop(item, None)
        if slot is not None:
            del self.items[slot][item]

    def due(self, now: float) -> list[T]:
        """Items of the slices that began since the last call, each at most once."""
        current = math.floor((now + EARLY_S) / self.width_s)
        first = max(self._next, current - len(self.items) + 1)
        self._next = max(self._next, current + 1)
        return [item for index in range(first, current + 1) for item in self.items[index % len(self.items)]]

    def next_due(self) -> float | None:
        """When the next slice that holds something begins; None when none does."""
        if not self._home:
            return None
        count = len(self.items)
        index = next(i for i in range(self._next, self._next + count) if self.items[i % count])
        return index * self.width_s


def _spread(count: int) -> list[int]:
    """0 to ``count`` - 1, each far from its predecessors: 0, the middle, the quarters, the eighths..."""
    order = {0: None}
    parts = 2
    while len(order) < count:
        order |= dict.fromkeys(count * odd // parts for odd in range(1, parts, 2))
        parts *= 2
    return list(order)


class Wheel(Generic[T]):
    """Calls ``serve`` for every item once per interval, on the running event loop."""

    def __init__(self, interval_s: float, serve: Callable[[T], None]) -> None:
        self._slices: Slices[T] = Slices(interval_s)
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._newcomers: dict[T, None] = {}
        self._greeting: asyncio.TimerHandle | None = None

    def add(self, item: T) -> None:
        """Serve ``item`` from now on."""
        self._slices.add(item)
        self._newcomers[item] = None
        self._arm()
        self._greet_soon()

    def discard(self, item: T) -> None:
        """Serve ``item`` no longer."""
        self._slices.discard(item)
        self._newcomers.pop(item, None)

    def start(self) -> None:
        """Begin turning."""
        self._loop = asyncio.get_running_loop()
        self._slices.due(self._loop.time())
        self._arm()
        self._greet_soon()

    def stop(self) -> None:
        """Stop turning."""
        self._loop = None
        for timer in (self._timer, self._greeting):
            if timer is not None:
                timer.cancel()
        self._timer = self._greeting = None

    def _greet_soon(self) -> None:
        if self._loop is not None and self._greeting is None and self._newcomers:
            self._greeting = self._loop.call_later(SLICE_S, self._greet)

    def _greet(self) -> None:
        """Serve a handful of newcomers; those whose slice came first are none any more."""
        self._greeting = None
        for item in list(islice(self._newcomers, HANDFUL)):
            del self._newcomers[item]
            self._serve(item)
        self._greet_soon()

    def _arm(self) -> None:
        if self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = self._slices.next_due()
        if when is not None:
            self._timer = self._loop.call_at(when, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if self._loop is not None:
            due = self._slices.due(self._loop.time())
            self._arm()
            for item in due:
                self._newcomers.pop(item, None)
                self._serve(item)
