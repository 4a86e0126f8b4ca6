"""Turns what discovery reports into rows of the endpoint table, and tells everybody who must know.

A discovery plugin reports complete sets. The runtime compares each with the table: endpoints that are gone
or have moved to another address are removed first, then new ones are added, then labels are replaced. The
observers (scraper, metrics, plugins) hear of every removal and addition in that order.

Loading and polling run beside the event loop, because they read files and may hang with the file system; the
table is changed on the loop only. ``stop`` does not wait for a call that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Final

from dataplane.aside import aside
from epp.interfaces.data_layer import DiscoveredSet, EndpointDiscovery
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request_control import EndpointChangeObserver, EndpointObserver

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""Pause between two looks. A file must look the same in two, so a change applies within half a second."""

MAX_PROBLEMS: Final = 100
"""Problems kept for the admin page."""

MAX_LOGGED: Final = 20
"""Problems of one reading that are logged."""


class DiscoveryRuntime:
    """Keeps the table equal to what one discovery plugin reports."""

    def __init__(
        self, discovery: EndpointDiscovery, table: EndpointTable, observers: Sequence[EndpointObserver]
    ) -> None:
        self._discovery = discovery
        self._table = table
        self._observers = list(observers)
        self._task: asyncio.Task[None] | None = None
        self._complaints: list[str] = []
        self.problems: list[str] = []
        """What the last reading complained about, at most ``MAX_PROBLEMS``."""

    def observe_with(self, observers: Sequence[EndpointObserver]) -> None:
        """Tell these of changes from now on, instead of those before."""
        self._observers = list(observers)

    async def load(self) -> None:
        """Fill the table for the first time. ``ConfigError`` when there is nothing usable."""
        self.apply(await self.read())

    async def read(self) -> DiscoveredSet:
        """The first set, for ``apply``. ``ConfigError`` when there is nothing usable."""
        return await aside(self._discovery.load)

    def start(self) -> None:
        """Watch for changes, on the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="endpoint-discovery")

    async def stop(self) -> None:
        """Watch no longer. The table stays as it is."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                found = await aside(self._discovery.poll)
            except Exception:  # a plugin from outside may break its promise; the set there is stays
                log.exception("endpoint discovery failed; the endpoints there are stay")
                await asyncio.sleep(10 * POLL_S)
                continue
            if found is not None:
                self.apply(found)

    def apply(self, found: DiscoveredSet) -> None:
        """Make the table hold this set, on the event loop."""
        table = self._table
        wanted = {spec.id: spec for spec in found.endpoints}
        problems = list(found.problems)
        removed = added = changed = 0
        for endpoint in list(table.all().endpoints):
            spec = wanted.get(endpoint.spec.id)
            if spec is None or spec.key != endpoint.key:
                table.remove(endpoint.spec.id)
                self._tell(methodcaller("on_endpoint_removed", endpoint))
                removed += 1
        for spec in wanted.values():
            present = table.get(spec.id)
            if present is None:
                try:
                    endpoint = table.add(spec)
                except ValueError as error:
                    problems.append(f"endpoint {spec.id} is left out: {error}")
                    continue
                self._tell(methodcaller("on_endpoint_added", endpoint))
                added += 1
            elif present.spec != spec:
                table.relabel(spec.id, spec)
                self._tell(methodcaller("on_endpoint_changed", present), EndpointChangeObserver)
                changed += 1
        self._report(problems, f"{added} added, {removed} removed, {changed} relabelled")

    def _tell(self, call: Callable[[EndpointObserver], None], role: Any = EndpointObserver) -> None:
        for observer in self._observers:
            try:
                if isinstance(observer, role):
                    call(observer)
            except Exception:  # one observer's defect must not keep the others from hearing of it
                log.exception("%s failed on a change of endpoints", type(observer).__name__)

    def _report(self, problems: list[str], summary: str) -> None:
        if problems != self._complaints:
            self._complaints = problems
            for problem in problems[:MAX_LOGGED]:
                log.warning("endpoint discovery: %s", problem)
            if len(problems) > MAX_LOGGED:
                log.warning("endpoint discovery: and %d more problems", len(problems) - MAX_LOGGED)
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        self.problems = problems[:MAX_PROBLEMS] + more
        log.info("endpoints: %s; the pool has %d", summary, len(self._table))
