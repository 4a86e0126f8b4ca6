"""Child processes that belong together: started one by one, awaited with progress, ended together.

A process that ends before all are declared ready fails the start; later ones are restarted (see
`dataplane.processes.child`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from dataplane.processes.child import Child, Say, StartError

READY_TIMEOUT_S = 120.0
READY_POLL_S = 0.1

IsReady = Callable[[], Awaitable[bool]]


class Supervisor:
    """The processes of one run, by name."""

    def __init__(self, logs: Path, say: Say, busy: Say) -> None:
        self.children: dict[str, Child] = {}
        self.say = say
        self._logs = logs
        self._busy = busy

    async def launch(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> None:
        """Start a process; ``env`` is its whole environment, None = that of this process."""
        child = Child(name, command, self._logs, self.say, env)
        self.children[name] = child
        await child.start()

    async def step(self, what: str, work: Awaitable[None]) -> None:
        """Wait for one part of the start, and tell when it is done."""
        started = time.monotonic()
        self._busy(what)
        await work
        self.say(f"ready: {what} ({time.monotonic() - started:.1f} s)")

    async def until(self, is_ready: IsReady, name: str) -> None:
        """Wait until a part is ready. `StartError` when any process has failed, or the time is up."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while not await is_ready():
                    self.check()
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            child = self.children[name]
            raise StartError(
                f"{name} is not ready after {READY_TIMEOUT_S:g} s; the end of {child.log}:\n{child.tail()}"
            ) from None

    def check(self) -> None:
        """`StartError` when a process has ended that should not have."""
        for child in self.children.values():
            if child.failed.done():
                raise child.failed.result()

    def all_ready(self) -> None:
        """The start is over: from now on whoever dies is started again."""
        for child in self.children.values():
            child.is_ready = True

    async def stop(self, *stages: Sequence[str]) -> None:
        """End the named processes, one stage after the other, then all others."""
        for names in stages:
            await asyncio.gather(*(self.children[name].stop() for name in names if name in self.children))
        await asyncio.gather(*(child.stop() for child in self.children.values()))

    async def hold(self, *names: str) -> None:
        """Kill processes, and start them again only when they are released."""
        for name in names:
            self.children[name].kill()
        await asyncio.gather(*(self.children[name].stop() for name in names))

    async def release(self, *names: str) -> None:
        """Start processes that were held."""
        await asyncio.gather(*(self.children[name].start() for name in names))

    def kill(self) -> None:
        """End every process at once."""
        for child in self.children.values():
            child.kill()
