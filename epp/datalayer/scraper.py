"""Keeps the measured columns of the endpoint table young: one target per endpoint and data source.

Owns the targets, the wheels that pace them (one per source), and the sweep that ends overdue scrapes and
marks rows as stale whose last measurement is too old. All of it lives on the event loop; the only blocking
thing a scrape does is reading a few series out of a text it has in memory.

Discovery tells of endpoints that come and go through ``on_endpoint_added`` and ``on_endpoint_removed``.
Without sources there are no targets, no timers and no connections. The first source that measures load keeps
the ledger: its scrapes date the rows and are set against the requests booked since.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final

from dataplane.clock import SYSTEM_CLOCK, Clock
from epp.datalayer.certificates import follow_certificates
from epp.datalayer.target import ErrorCounter, Shared, Target
from epp.datalayer.wheel import Wheel
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.data_layer import CertificateFollower, DataSource
from epp.interfaces.endpoint import Endpoint, EndpointTable

log = logging.getLogger(__name__)

SWEEP_S: Final = 0.1
"""Period of the search for overdue scrapes and stale rows."""

MISSED_ROUNDS: Final = 3
"""A row is not called stale before this many scrapes of its source could have been made."""


class Scraper:
    """Scrapes every endpoint of the table from every source. An ``EndpointObserver``."""

    def __init__(
        self,
        table: EndpointTable,
        sources: Sequence[DataSource],
        errors: ErrorCounter,
        *,
        base_interval_s: float,
        staleness_s: float,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self._table = table
        self._clock = clock
        self._targets: dict[Endpoint, list[Target]] = {}
        self._wheels: list[tuple[Shared, Wheel[Target]]] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._followed = [
            source
            for source in sources
            if isinstance(source, CertificateFollower) and source.certificate_files
        ]
        self._renewal: asyncio.Task[None] | None = None
        rng = rng or random.Random()  # noqa: S311  # spreads retries, keeps no secret
        self.staleness_s = staleness_s
        """Age at which a row stops being trusted."""
        ledger = next((source for source in sources if _measures_load(source)), None)
        self._measures_load = ledger is not None
        for source in sources:
            interval_s = max(base_interval_s, source.interval_s)
            is_ledger = source is ledger
            shared = Shared(source, interval_s, table, errors, clock=clock, rng=rng, keeps_ledger=is_ledger)
            shared.staleness_s = max(staleness_s, interval_s * MISSED_ROUNDS)
            self._wheels.append((shared, Wheel(interval_s, Target.poll)))
            if is_ledger and shared.staleness_s > staleness_s:
                self.staleness_s = shared.staleness_s
                log.warning(
                    "metrics are scraped every %g s, so endpoints count as stale after %g s, not after the "
                    "%g s of --metrics-staleness-threshold",
                    interval_s, self.staleness_s, staleness_s,
                )  # fmt: skip

    def start(self) -> None:
        """Begin scraping, on the running event loop; endpoints that are in the table already included."""
        if not self._measures_load:
            self._forget_measurements()
        for endpoint in self._table.all().endpoints:
            if endpoint not in self._targets:
                self.on_endpoint_added(endpoint)
        for _, wheel in self._wheels:
            wheel.start()
        if self._wheels:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        if self._followed:
            self._renewal = asyncio.get_running_loop().create_task(
                follow_certificates(self._followed), name="scraping-certificates"
            )

    def _forget_measurements(self) -> None:
        """Nobody renews what an earlier scraper has found out: it is neither fresh nor is anybody gone."""
        now = self._clock()
        for endpoint in self._table.all().endpoints:
            self._table.distrust(endpoint.slot)
            self._table.reached(endpoint.slot, now)

    def stop(self) -> None:
        """Close every connection and timer."""
        for _, wheel in self._wheels:
            wheel.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        for endpoint in list(self._targets):
            self.on_endpoint_removed(endpoint)

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        """Scrape a new endpoint from its next slice on."""
        targets = self._targets[endpoint] = []
        for shared, wheel in self._wheels:
            target = Target(endpoint, shared)
            targets.append(target)
            wheel.add(target)

    def on_endpoint_removed(self, endpoint: Endpoint) -> None:
        """Forget an endpoint at once, a scrape under way included."""
        for target, (_, wheel) in zip(self._targets.pop(endpoint, ()), self._wheels, strict=False):
            wheel.discard(target)
            target.close()

    def problem(self, endpoint: Endpoint) -> str:
        """What is wrong with the endpoint's metrics at present; empty when nothing is."""
        return "; ".join(t.problem for t in self._targets.get(endpoint, ()) if t.problem)

    def _sweep(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        now = self._clock()
        for targets in list(self._targets.values()):
            for target in targets:
                target.overdue(now)
                target.lapse(now)
        self._table.expire(now, self.staleness_s)


def _measures_load(source: DataSource) -> bool:
    return any(ENGINE_METRICS in extractor.produces for extractor in source.extractors)
