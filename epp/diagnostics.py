"""Where a running process is and where its time goes, for whoever has to find out why it is slow.

``stacks`` is a snapshot: every thread and every task of the event loop, with what it is in the middle of.
``Profiler`` looks at the event loop's thread a hundred times a second for some seconds, from a thread of its
own, and counts what it sees; one look costs the loop some tens of microseconds. Both show names of code and
line numbers, no values.
"""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Final

MAX_TASKS: Final = 200
MAX_FRAMES: Final = 64
"""Innermost frames of one stack."""
MAX_STACKS: Final = 10_000
"""Different stacks one profile tells apart; further ones are counted together."""
MAX_SECONDS: Final = 30
PERIOD_S: Final = 0.01

_OTHER: Final = "(other stacks)"


def stacks() -> str:
    """Text: threads first, then tasks, each with its stack, innermost call last."""
    return "\n".join((*_threads(), *_tasks())) + "\n"


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}"
        yield from _lines(_outward(frame))
        yield ""


def _tasks() -> Iterator[str]:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in tasks[:MAX_TASKS]:
        yield f"task {task.get_name()}"
        yield from _lines(reversed(task.get_stack(limit=MAX_FRAMES)))
        yield ""
    if len(tasks) > MAX_TASKS:
        yield f"{len(tasks) - MAX_TASKS} more tasks"


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _lines(innermost_first: Iterable[FrameType]) -> list[str]:
    frames = list(islice(innermost_first, MAX_FRAMES))
    return [
        f"  {_name(frame)}:{frame.f_lineno}  "
        f"{linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals).strip()}"
        for frame in reversed(frames)
    ]


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


class Profiler:
    """Profiles one thread, one profile at a time."""

    def __init__(self) -> None:
        self._running: threading.Event | None = None
        """Ends the profile that is being made."""

    def stop(self) -> None:
        """End the profile that is being made; what it has seen is its result."""
        if self._running is not None:
            self._running.set()

    async def profile(self, seconds: float) -> str | None:
        """Where the calling thread is in so many seconds; None while another profile runs.

        A line for each stack, outermost call first, and how often it was seen: what flame graphs are made of.
        """
        if self._running is not None:
            return None
        stop = self._running = threading.Event()
        try:
            seen = await asyncio.to_thread(_watch, threading.get_ident(), seconds, stop)
        finally:
            stop.set()  # whoever asked may be gone; the thread ends at its next look
            self._running = None
        return "".join(f"{stack} {count}\n" for stack, count in seen.most_common())


def _watch(thread: int, seconds: float, stop: threading.Event) -> Counter[str]:
    """Stacks of a thread by how often they were seen."""
    seen: Counter[str] = Counter()
    for _ in range(max(1, round(seconds / PERIOD_S))):
        if stop.wait(PERIOD_S):
            break
        frames = list(islice(_outward(sys._current_frames().get(thread)), MAX_FRAMES))
        stack = ";".join(map(_name, reversed(frames)))
        seen[stack if stack in seen or len(seen) < MAX_STACKS else _OTHER] += 1
    return seen
