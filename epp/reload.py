"""Follows the configuration file: a changed file becomes the running configuration, or changes nothing.

One reload at a time reads the text, hands it to ``apply`` and remembers how it went. ``apply`` either puts
the new configuration in place completely or raises; then the running one stays, and the reason is kept for
the admin page, the metrics and the log until a reload succeeds. A text that is already running is not
applied again, so touching the file costs nothing.

The file is looked at once in ``POLL_S`` and must look the same in two looks before it is read, so that a
half-written file is left alone. SIGHUP and the admin page reload at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from dataplane.aside import aside
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.observability.exposition import MetricSet

log = logging.getLogger(__name__)

POLL_S: Final = 0.25
MAX_PROBLEMS: Final = 50
"""Mistakes of a refused text that are kept and logged."""

STOPPING: Final = "the picker is stopping"

PREFIX: Final = "pointsman_epp_config_"


def revision_of(text: bytes) -> str:
    """A short name for a configuration's text."""
    return hashlib.sha256(text).hexdigest()[:12]


def _looks(file: str, like: FileSignature) -> bool:
    return FileSignature.of(file) == like


class Reloader:
    """Keeps the running configuration equal to the text it is given."""

    def __init__(
        self,
        read: Callable[[], bytes],
        apply: Callable[[bytes, str], Awaitable[None]],
        revision: str,
        metrics: MetricSet,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._apply = apply
        self._wall_clock = wall_clock
        self._lock = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self.stopped = False
        """Whether nothing may be put in place any more."""
        self.revision = revision
        self.applied_at = wall_clock()
        self.problems: list[str] = []
        """Why the last text was refused; empty when it was applied."""
        self.refused_revision = ""
        """Of the text that ``problems`` are about; empty when it could not be read."""
        self._outcomes = metrics.counter(
            PREFIX + "reloads_total", "Reloads of the configuration by outcome.", ("outcome",)
        )
        metrics.computed(
            PREFIX + "last_reload_successful",
            "1 unless the newest text of the configuration was refused.",
            (),
            lambda: [((), 0 if self.problems else 1)],
        )
        metrics.computed(
            PREFIX + "applied_timestamp_seconds",
            "When the running configuration was applied.",
            (),
            lambda: [((), self.applied_at)],
        )

    async def reload(self, is_still: Callable[[], bool] | None = None) -> list[str]:
        """Read and apply. Returns the problems: empty when the text runs now, or ran already.

        ``is_still``, which may block, says after reading whether the file is as it was before; if it is not,
        it is being written, and nothing happens.
        """
        async with self._lock:
            if self.stopped:
                return [STOPPING]
            self.refused_revision = ""
            try:
                text = await aside(self._read)
                if is_still is not None and not await aside(is_still):
                    return []
                revision = revision_of(text)
                if revision == self.revision:
                    self._done("unchanged", [])
                    return []
                self.refused_revision = revision
                await self._apply(text, revision)
            except ConfigErrors as errors:
                return self._done("refused", [str(error) for error in errors.errors])
            except ConfigError as error:
                return self._done("refused", [str(error)])
            except Exception as error:  # a defect of ours must not cost the running configuration
                log.exception("a reload failed")
                return self._done("failed", [f"internal error: {error}"])
            self.revision, self.applied_at, self.refused_revision = revision, self._wall_clock(), ""
            log.info("configuration %s is running", revision)
            return self._done("applied", [])

    def watch(self, file: str, applied: FileSignature) -> None:
        """Reload whenever the file is another than the one ``applied``, on the running event loop."""
        self._watcher = asyncio.get_running_loop().create_task(
            self._watch(file, applied), name="config-watch"
        )

    async def stop(self) -> None:
        """Watch no longer, and put nothing in place any more, a reload under way included."""
        self.stopped = True
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None

    def describe(self) -> dict[str, Any]:
        """JSON-able: what runs since when, and what is wrong with the newest text."""
        return {
            "revision": self.revision,
            "appliedAt": self.applied_at,
            "refused": self.problems,
            "refusedRevision": self.refused_revision if self.problems else "",
        }

    async def _watch(self, file: str, applied: FileSignature) -> None:
        seen = applied
        while True:
            await asyncio.sleep(POLL_S)
            before, seen = seen, await aside(lambda: FileSignature.of(file))
            if seen != applied and seen == before:
                applied = seen
                await self.reload(partial(_looks, file, seen))

    def _done(self, outcome: str, problems: list[str]) -> list[str]:
        self._outcomes.child(outcome).value += 1
        self.problems = problems[:MAX_PROBLEMS]
        for problem in self.problems:
            log.error(
                "the new configuration is refused, the running one (%s) stays: %s", self.revision, problem
            )
        return self.problems
