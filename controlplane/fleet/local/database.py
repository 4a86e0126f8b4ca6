"""The database as the runner sees it: asked on one daemon thread, so that a dead one delays nothing else.

Django keeps a connection per thread, hence one thread for all calls. Neither the event loop nor the end of
the process waits for a call that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from django.db import Error, connection, reset_queries

from controlplane.configs import workers
from controlplane.configs.guarding import Guarded
from controlplane.core import changes
from controlplane.core.errors import ServiceError
from controlplane.core.roles import Actor, Channel, Role
from controlplane.fleet import status
from controlplane.fleet.endpoints import EndpointReports, Seen
from controlplane.fleet.local import tokens
from controlplane.fleet.local.counts import Counts
from controlplane.fleet.local.wanted import Wanted, read_wanted

T = TypeVar("T")

TIMEOUT_S: Final = 15.0
MAX_WAITING_CALLS: Final = 8
COUNTER: Final = Actor("fleet", Role.WORKER, Channel.AUTOMATION)
"""Tells what pickers have counted."""


class SourceError(Exception):
    """The database cannot be asked now."""


class Source(Protocol):
    """Where the runner learns what should run, and tells what does. Each call may raise ``SourceError``."""

    async def marker(self) -> object:
        """Differs from the last one after any change."""
        ...

    async def wanted(self) -> Wanted:
        """What should run."""
        ...

    async def report(
        self, reports: Mapping[str, Mapping[str, Any]], endpoints: Mapping[str, Sequence[Seen]]
    ) -> None:
        """What runs: pool -> report; and the endpoints of pools whose pickers tell."""
        ...

    async def tokens(self, held: Mapping[str, str]) -> Mapping[str, str]:
        """Pool -> a token of its picker that holds, for what it has; other pools' tokens hold no more."""
        ...

    async def observe(self, pool: str, guarded: Guarded, counts: Counts) -> None:
        """What a pool's picker has counted since it runs a revision."""
        ...


class Database:
    """The control plane's own database."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue(MAX_WAITING_CALLS)
        self._endpoints = EndpointReports()
        self._runner = f"{socket.gethostname()}:{os.getpid()}"
        threading.Thread(target=self._work, name="fleet database", daemon=True).start()

    async def marker(self) -> object:
        """The number of changes."""
        return await self._call(changes.current)

    async def wanted(self) -> Wanted:
        """A few queries."""
        return await self._call(read_wanted)

    async def tokens(self, held: Mapping[str, str]) -> Mapping[str, str]:
        """Two queries while nothing changes."""
        return await self._call(lambda: tokens.renew(held))

    async def report(
        self, reports: Mapping[str, Mapping[str, Any]], endpoints: Mapping[str, Sequence[Seen]]
    ) -> None:
        """One transaction, and one for each pool whose endpoints fare otherwise than before."""
        await self._call(lambda: self._report(reports, endpoints))

    def _report(
        self, reports: Mapping[str, Mapping[str, Any]], endpoints: Mapping[str, Sequence[Seen]]
    ) -> None:
        status.report(self._runner, reports)
        self._endpoints.write(endpoints, reports)

    async def observe(self, pool: str, guarded: Guarded, counts: Counts) -> None:
        """One transaction."""
        document, number = guarded.document, guarded.revision
        await self._call(
            lambda: workers.observe(COUNTER, pool, document, number, counts.requests, counts.errors)
        )

    async def _call(self, call: Callable[[], T]) -> T:
        future: Future[T] = Future()
        try:
            self._calls.put_nowait((future, call))
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.wrap_future(future)
        except (queue.Full, TimeoutError):
            raise SourceError("the database does not answer") from None
        except Error as error:
            raise SourceError(f"the database refuses: {error}") from error
        except ServiceError as error:
            raise SourceError(f"the control plane refuses: {error.message}") from error

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                connection.close_if_unusable_or_obsolete()
                result = call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits for the call
                future.set_exception(error)
                with contextlib.suppress(Error):
                    connection.close()
            else:
                future.set_result(result)
            reset_queries()
