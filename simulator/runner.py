"""Drives one engine on the event loop: one timer while there is work, nothing while there is none.

The engine keeps its own timeline; a timer that fires late or early (timers of the loop have a resolution of a
millisecond) moves no step, since each begins where the one before was due.
"""

import asyncio

from dataplane.clock import SYSTEM_CLOCK, Clock
from simulator.engine import TIMER_SLACK, Engine
from simulator.sequence import Sequence

STEPS_PER_TURN = 8
"""Steps done in one go when they are already due, before the loop gets to read and write sockets."""


class EngineRunner:
    """Owns the calls into `engine`; stopped for good by `stop`."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, clock: Clock = SYSTEM_CLOCK) -> None:
        self._engine = engine
        self._loop = loop
        self._clock = clock
        self._timer: asyncio.Handle | None = None
        self._paused = False
        self._stopped = False

    def submit(self, sequences: list[Sequence]) -> None:
        """Hand `sequences` to the engine (QueueFullError) and see that it runs."""
        self._engine.submit(sequences, self._clock())
        if self._engine.admits_at_once:
            self._run_soon()

    def abort(self, sequences: list[Sequence]) -> None:
        """Take back those of `sequences` that are not finished."""
        self._engine.abort(sequences, self._clock())

    def pause(self) -> None:
        """Let nothing happen until `resume`."""
        self._paused = True
        self._cancel()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        self._run_soon()

    def stop(self) -> None:
        """Never run again."""
        self._stopped = True
        self._cancel()

    def _run_soon(self) -> None:
        if self._paused or self._stopped:
            return
        self._cancel()
        self._timer = self._loop.call_soon(self._run)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        for _ in range(STEPS_PER_TURN):
            now = self._clock()
            due = self._engine.advance(now)
            if due is None:
                return
            if due > now + TIMER_SLACK:
                self._timer = self._loop.call_later(due - now, self._run)
                return
        self._timer = self._loop.call_soon(self._run)
