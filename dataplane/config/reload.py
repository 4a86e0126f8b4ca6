"""Follows the configuration: a changed text becomes the running configuration, or changes nothing.

One reload at a time reads the text, hands it to ``apply`` and remembers how it went. ``apply`` either puts
the new configuration in place completely or raises; then the running one stays, and the reason is kept for
the admin page, the metrics and the log until a reload succeeds. A text that is already running is not
applied again, so touching the file costs nothing.

What a control plane has sent stands in the place of the file until it says otherwise.

The file is looked at once in ``POLL_S`` and must look the same in two looks before it is read, so that a
half-written file is left alone. SIGHUP and the admin page reload at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from dataplane.aside import aside
from dataplane.config.given import Given
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.observability.exposition import MetricSet

log = logging.getLogger(__name__)

POLL_S: Final = 0.25
MAX_PROBLEMS: Final = 50
"""Mistakes of a refused text that are kept and logged."""

EMPTIED: Final = (
    "the file of the configuration has become empty; start without --config-file to run the built-in default"
)
"""Why a text without anything is refused."""
STOPPING: Final = "the process is stopping"


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
        prefix: str,
        given: Given | None = None,
        relabel: Callable[[str], None] = lambda _: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``given`` is what runs, if a control plane's; ``relabel`` hears that it is called otherwise.

        ``prefix`` begins the names of the metrics.
        """
        self._read = read
        self._given = given
        self._digest = revision if given is None else revision_of(given.text)
        self._relabel = relabel
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
            prefix + "reloads_total", "Reloads of the configuration by outcome.", ("outcome",)
        )
        metrics.computed(
            prefix + "last_reload_successful",
            "1 unless the newest text of the configuration was refused.",
            (),
            lambda: [((), 0 if self.problems else 1)],
        )
        metrics.computed(
            prefix + "applied_timestamp_seconds",
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
            return [str(error) for error in await self._attempt(is_still)][:MAX_PROBLEMS]

    async def take(self, given: Given | None) -> Sequence[ConfigError]:
        """Run a control plane's text from now on; None: that of the file again. Why not, if it is refused."""
        async with self._lock:
            if self.stopped:
                return [ConfigError(STOPPING)]
            before, self._given = self._given, given
            errors = await self._attempt(None)
            if errors:
                self._given = before
            return errors

    async def _attempt(self, is_still: Callable[[], bool] | None) -> Sequence[ConfigError]:
        self.refused_revision = ""
        try:
            if self._given is not None:
                text, revision = self._given
            else:
                text = await aside(self._read)
                if is_still is not None and not await aside(is_still):
                    return []
                revision = revision_of(text)
            digest = revision_of(text)
            if digest == self._digest:
                if revision != self.revision:
                    self.revision = revision
                    self._relabel(revision)
                return self._done("unchanged", [])
            self.refused_revision = revision
            if self._given is None and not text.strip():  # a full disk or a lost key, not a wish for defaults
                raise ConfigError(EMPTIED)
            await self._apply(text, revision)
        except ConfigErrors as errors:
            return self._done("refused", errors.errors)
        except ConfigError as error:
            return self._done("refused", [error])
        except Exception as error:  # a defect of ours must not cost the running configuration
            log.exception("a reload failed")
            return self._done("failed", [ConfigError(f"internal error: {error}")])
        self.revision, self.applied_at, self.refused_revision = revision, self._wall_clock(), ""
        self._digest = digest
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

    def _done(self, outcome: str, errors: Sequence[ConfigError]) -> Sequence[ConfigError]:
        self._outcomes.child(outcome).value += 1
        self.problems = [str(error) for error in errors[:MAX_PROBLEMS]]
        for problem in self.problems:
            log.error(
                "the new configuration is refused, the running one (%s) stays: %s", self.revision, problem
            )
        return errors
