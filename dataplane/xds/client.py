"""Keeps a worker equal to what its control plane says, and the last good state on disk.

One task: connect, hear, have each new set judged, answer, keep. When the stream ends it begins again after a
pause that doubles, with a share of chance so that a thousand workers do not come back at once. Nothing the
control plane does, or does not do, ends the task or takes away what is in use. A set over which the process
ended is refused when it comes again, so that it does not end for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from dataplane.aside import aside
from dataplane.errors import ConfigError
from dataplane.xds.messages import Refusal, Request, Response
from dataplane.xds.store import Store
from dataplane.xds.subscriber import Held, Offer, Subscriber

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
FATAL: Final = "the worker ended while it took this, and takes it again only when it is published anew"
STEADY_S: Final = 5.0
"""A stream that lasted this long was a good one: the next pause is the first again."""

Judge = Callable[[str, Held], Awaitable[Sequence[ConfigError]]]
"""Puts a set of a type into use; or leaves everything as it is and says what is wrong with the set."""


class Stream(Protocol):
    """A conversation with a control plane."""

    async def send(self, request: Request) -> None:
        """Say something."""

    async def established(self) -> None:
        """Return once the other side has taken the stream."""

    async def receive(self) -> Response:
        """Hear something."""

    async def close(self) -> None:
        """End it."""


class XdsClient:
    """Owns the conversation. ``judge`` is called for every set that is new, one at a time."""

    def __init__(
        self,
        subscriber: Subscriber,
        open_stream: Callable[[], Awaitable[Stream]],
        judge: Judge,
        store: Store | None,
        *,
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._subscriber = subscriber
        self._open = open_stream
        self._judge = judge
        self._store = store
        self._rng = rng
        self._clock = clock
        self._sleep = sleep
        self._pause = FIRST_PAUSE_S
        self._task: asyncio.Task[None] | None = None
        self.connected = False
        """Whether the control plane has taken the stream."""
        self.failure = ""
        """Why there is no stream, or why the last one ended."""
        self.store_failure = ""
        """Why the last good state is not on disk."""
        self.refusal: Refusal | None = None
        """What was wrong with the last set, if it was refused."""
        self.heard = asyncio.Event()
        """Set when a set of each type has been judged."""
        self._judged: set[str] = set()
        self._fatal: tuple[str, str] | None = None
        """Type and digest of the set over which the last process ended."""

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="xds-client")

    async def stop(self) -> None:
        """End the conversation; what is in use stays."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def describe(self) -> dict[str, Any]:
        """JSON-able: how the conversation goes."""
        return {
            "connected": self.connected,
            "failure": self.failure,
            "versions": {kind: str(held.version) for kind, held in self._subscriber.held.items()},
            "refused": None if self.refusal is None else self.refusal.message,
            "storeFailure": self.store_failure,
        }

    async def _run(self) -> None:
        if self._store is not None:
            self._fatal = await aside(self._store.unfinished)
        while True:
            began = self._clock()
            try:
                await self._converse()
            except ConfigError as error:
                self._lost(str(error))
            except Exception as error:  # noqa: BLE001 - whatever ends a stream, the worker goes on and tries again
                self._lost(str(error) or type(error).__name__)
            if self._clock() - began >= STEADY_S:
                self._pause = FIRST_PAUSE_S
            await self._sleep(self._pause * (0.5 + self._rng.random()))
            self._pause = min(self._pause * 2, LONGEST_PAUSE_S)

    def _lost(self, why: str) -> None:
        if self.connected or why != self.failure:
            log.warning("no control plane, what is in use stays: %s", why)
        self.connected, self.failure = False, why

    async def _converse(self) -> None:
        stream = await self._open()
        try:
            for request in self._subscriber.connect():
                await stream.send(request)
            await stream.established()
            log.info("connected to the control plane")
            self.connected, self.failure = True, ""
            while True:
                await stream.send(await self._answer(await stream.receive()))
        finally:
            await stream.close()

    async def _answer(self, response: Response) -> Request:
        offer = self._subscriber.receive(response)
        if isinstance(offer, Request):
            self.refusal = offer.refusal
            log.error("refused what the control plane sent: %s", offer.refusal and offer.refusal.message)
            return offer
        problems = await self._try(offer) if offer.changed else ()
        if problems:
            answer = self._subscriber.refuse(offer, problems)
            self.refusal = answer.refusal
            log.error("refused version %s: %s", offer.held.version, answer.refusal and answer.refusal.message)
        else:
            answer = self._subscriber.accept(offer)
            self.refusal = None
            await self._keep(offer)
        self._judged.add(offer.type_url)
        if self._judged >= self._subscriber.types:
            self.heard.set()
        return answer

    async def _try(self, offer: Offer) -> Sequence[ConfigError]:
        """Have a set put into use, with a note on disk as long as it could end the process."""
        type_url, version = offer.type_url, offer.held.version
        if self._fatal == (type_url, version.digest):
            return [ConfigError(FATAL)]
        store = self._store
        if store is None:
            return await self._judge(type_url, offer.held)
        try:
            with contextlib.suppress(OSError):  # on a full disk it is tried all the same
                await aside(lambda: store.begin(type_url, version))
            return await self._judge(type_url, offer.held)
        finally:
            store.end()

    async def _keep(self, offer: Offer) -> None:
        """Save what is in use; without it the worker serves all the same."""
        if self._store is None:
            return
        store, held = self._store, dict(self._subscriber.held)
        try:
            await aside(lambda: store.save(held))
        except OSError as error:
            self.store_failure = f"{store.path}: {error.strerror or error}"
            log.error("version %s is in use but not kept on disk: %s", offer.held.version, self.store_failure)
        else:
            self.store_failure = ""
