"""One supervised process: started in its own process group, logged to its own file, restarted when it dies.

The child never outlives its parent: the kernel kills it when the parent goes away, however that happens,
and an orderly stop signals the whole group. A child that dies before it was declared ready has failed to
start, which its owner learns from `failed`; one that dies later is started again after a delay that doubles
with each early death. The delay is forgotten once the child has lived for `STABLE_AFTER_S`.

Everything runs on the event loop's thread, which must be the main thread: the kernel ties a child's life to
the thread that started it.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

BACKOFF_FIRST_S: Final = 0.25
BACKOFF_MAX_S: Final = 10.0
STABLE_AFTER_S: Final = 30.0
STOP_GRACE_S: Final = 5.0
LOG_TAIL_LINES: Final = 12

PR_SET_PDEATHSIG: Final = 1

Say = Callable[[str], None]
"""Where a child's fate is told, one line each time."""

_libc = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """A process ended, or did not become ready, while the gateway was starting."""


class Child:
    """A process and its restarts."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        logs: Path,
        say: Say,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """``env`` is the whole environment; None = that of this process."""
        self.name = name
        self.command = [str(word) for word in command]
        self.log = logs / f"{name}.log"
        self.restarts = 0
        self.is_ready = False
        """Set by the owner; decides whether a death is a failed start or a reason to restart."""
        self.failed: asyncio.Future[StartError] = asyncio.get_running_loop().create_future()
        self._say = say
        self._env = dict(os.environ if env is None else env)
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the process and begin to watch it. Raises `StartError` when it cannot be executed."""
        await self._spawn()
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self.name}")

    async def stop(self) -> None:
        """End the process group: politely first, then for certain. Never raises; may be called twice."""
        self._stopping = True
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            self._say(f"{self.name} ignores SIGTERM; killing it")
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End the process group at once."""
        self._signal(signal.SIGKILL)

    def tail(self) -> str:
        """Return the last lines of the log."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 16_384))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    async def _spawn(self) -> None:
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._env,
                    start_new_session=True,
                    preexec_fn=die_with_parent(os.getpid()),
                )
            except OSError as error:
                raise StartError(f"{self.name}: cannot run {self.command[0]}: {error.strerror}") from None

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        delay = BACKOFF_FIRST_S
        while self._process is not None:
            started = loop.time()
            code = await self._process.wait()
            self._signal(signal.SIGKILL)  # whatever the process may have left behind in its group
            if not self.is_ready:
                text = f"{self.name} {ending(code)} while starting; the end of {self.log}:\n{self.tail()}"
                self.failed.set_result(StartError(text))
                return
            if loop.time() - started > STABLE_AFTER_S:
                delay = BACKOFF_FIRST_S
            self._say(f"{self.name} {ending(code)}; starting it again in {delay:g} s (log: {self.log})")
            await asyncio.sleep(delay)
            delay = min(delay * 2, BACKOFF_MAX_S)
            self.restarts += 1
            try:
                await self._spawn()
            except StartError as error:
                self._say(str(error))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a child runs between fork and exec so that the kernel kills it when `parent` ends."""

    def bind() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call above took effect
            os._exit(1)

    return bind


def ending(code: int) -> str:
    """Say how a process ended."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
