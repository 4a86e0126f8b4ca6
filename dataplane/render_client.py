"""Asking a vLLM server how it renders prompts, without letting its troubles become those of requests.

The server is asked over HTTP with connections that are kept. Time, size and number of the questions are
bounded. After ``FAILURES_TO_PAUSE`` failures in a row that are the server's (no connection, no answer in
time, a server error) nobody asks for a while, which doubles with every further failure; then one question
tries, and the first answer ends the pause. So a server that hangs costs a few requests its timeout, and all
others nothing. A path that it does not know (404, 405) is not asked for again for a minute.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from dataplane.clock import Clock
from dataplane.http_post import HttpPoster

log = logging.getLogger(__name__)

MAX_WAITING: Final = 256
"""Questions that may be under way; more are not asked."""
FAILURES_TO_PAUSE: Final = 3
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
UNKNOWN_PATH_S: Final = 60.0


class RenderError(Exception):
    """There is no answer; the message says why."""


class RenderClient:
    """Asks one server. Owned by the event loop's thread; ``close`` ends it."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url.rstrip("/")
        self._clock = clock
        self._poster = HttpPoster(url)
        self._under_way = 0
        self._failures = 0
        self._paused_until = float("-inf")
        self._unknown: dict[str, float] = {}
        """When paths that the server does not know are tried again; bounded by the paths asked for."""

    def may_ask(self, path: str) -> bool:
        """Whether a question is worth while now."""
        if self._under_way >= MAX_WAITING or self._clock() < self._unknown.get(path, float("-inf")):
            return False
        if self._failures < FAILURES_TO_PAUSE:
            return True
        return self._clock() >= self._paused_until and not self._under_way

    async def ask(self, path: str, body: bytes, timeout_s: float) -> bytes:
        """The answer to a POST of JSON. ``RenderError`` when there is none."""
        self._under_way += 1
        try:
            async with asyncio.timeout(timeout_s):
                status, answer = await self._poster.post(path, body)
        except TimeoutError:
            self._failed()
            raise RenderError(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            self._failed()
            raise RenderError(str(error) or type(error).__name__) from None
        finally:
            self._under_way -= 1
        if status >= 500:
            self._failed()
            raise RenderError(f"status {status}")
        self._answered()
        if status in (404, 405):
            self._unknown[path] = self._clock() + UNKNOWN_PATH_S
        if status != 200:
            raise RenderError(f"status {status}")
        return answer

    async def close(self) -> None:
        """Close the connections. Later questions fail."""
        await self._poster.close()

    def describe(self) -> dict[str, Any]:
        """How things stand with the server."""
        now = self._clock()
        return {
            "url": self.url,
            "underWay": self._under_way,
            "failuresInARow": self._failures,
            "pausedSeconds": round(max(0.0, self._paused_until - now), 3),
            "unknownPaths": sorted(path for path, until in self._unknown.items() if now < until),
        }

    def _failed(self) -> None:
        self._failures += 1
        if self._failures < FAILURES_TO_PAUSE:
            return
        beyond = min(self._failures - FAILURES_TO_PAUSE, 10)
        pause_s = min(FIRST_PAUSE_S * 2**beyond, LONGEST_PAUSE_S)
        self._paused_until = self._clock() + pause_s
        log.warning(
            "%s does not render prompts (%d failures in a row); it is not asked for %g s, and prompts are "
            "estimated meanwhile",
            self.url,
            self._failures,
            pause_s,
        )

    def _answered(self) -> None:
        if self._failures >= FAILURES_TO_PAUSE:
            log.info("%s renders prompts again", self.url)
        self._failures = 0
