"""One endpoint as one data source sees it: connect, ask, write the answer down, back off when it fails.

A target has at most one connection and one request outstanding. Everything happens on the event loop: the
wheel calls ``poll``, the connection calls ``received`` or ``failed``, the scraper's sweep calls ``overdue``.
A target never waits for another one, so a server that hangs costs nobody else anything.

Failures are counted each time but logged on change only: when a working endpoint stops answering, when the
way it fails changes, and when it answers again; one that keeps flapping is logged every ``RELOG_S`` at most.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from time import perf_counter
from typing import Any, Final, Protocol

from dataplane.addresses import split_host_port
from dataplane.clock import Clock
from dataplane.plugin.base import DataKey
from epp.datalayer.connection import ScrapeConnection
from epp.datalayer.http_response import ScrapeError
from epp.datalayer.measure import apply, refuse_undeclared
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.data_layer import DataSource, Measurements, UnreadablePageError
from epp.interfaces.endpoint import Endpoint, EndpointTable

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
"""Connecting, asking and answering together."""

MAX_BACKOFF_S: Final = 2.0
"""Longest pause before a dead endpoint is tried again, spread by a quarter either way."""

RELOG_S: Final = 10.0
"""Failures of one endpoint are logged at most this often."""

EXPENSIVE_S: Final = 0.005
BUSY_SHARE: Final = 0.05
"""Share of the event loop's time that one endpoint may take whose page takes longer than that to read."""

NOBODY_LISTENS: Final = "connect"
"""Kind of a failure to connect: unlike a slow or broken answer it ends the trust in earlier ones at once."""

_ELSEWHERE_HINT: Final = "check scheme, path and port of the data source"
_MISSING_HINT: Final = (
    "check that its engine type label or defaultEngine names its engine, and the path of the data source; "
    "some engines publish these series only after their first request"
)

Reader = Callable[[bytes], Measurements]


class ErrorCounter(Protocol):
    """Where failures are counted."""

    def poll_error(self, source_type: str) -> None:
        """One scrape brought no body."""
        ...

    def extract_error(self, source_type: str, extractor_type: str) -> None:
        """One body lacked series it should have."""
        ...


class Shared:
    """What all targets of one source have in common."""

    __slots__ = (
        "attributes",
        "clock",
        "errors",
        "hint",
        "interval_s",
        "keeps_ledger",
        "label",
        "rng",
        "source",
        "staleness_s",
        "table",
    )

    def __init__(
        self,
        source: DataSource,
        interval_s: float,
        table: EndpointTable,
        errors: ErrorCounter,
        *,
        clock: Clock,
        rng: random.Random,
        keeps_ledger: bool,
    ) -> None:
        self.source = source
        self.interval_s = interval_s
        self.table = table
        self.errors = errors
        self.clock = clock
        self.rng = rng
        self.keeps_ledger = keeps_ledger
        """Whether scrapes of this source date the rows; only one source may."""
        self.staleness_s = interval_s
        """Age at which attributes read from this source are dropped."""
        produced = [key for extractor in source.extractors for key in extractor.produces]
        self.attributes = [key for key in produced if key is not ENGINE_METRICS]
        self.label = "" if keeps_ledger else f"{source.name}: "
        """How reports tell this source from the one that measures load."""
        self.hint = _MISSING_HINT if ENGINE_METRICS in produced else _ELSEWHERE_HINT


class Target:
    """Polls one endpoint for one source."""

    __slots__ = (
        "_annotated_at",
        "_authority",
        "_connecting",
        "_connection",
        "_failures",
        "_is_own_address",
        "_logged_at",
        "_logged_kind",
        "_readers",
        "_request",
        "_retry_at",
        "_shared",
        "_since",
        "_spec",
        "_tls",
        "closed",
        "endpoint",
        "problem",
    )

    def __init__(self, endpoint: Endpoint, shared: Shared) -> None:
        self.endpoint = endpoint
        self.closed = False
        self.problem = ""
        """What is wrong with the endpoint's metrics at present; empty when nothing is."""
        self._shared = shared
        self._connection: ScrapeConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._since: float | None = None
        """When the scrape under way began."""
        self._annotated_at = shared.clock() if shared.attributes else None
        """When attributes were written last; a predecessor's may be there from the start."""
        self._failures = 0
        self._logged_kind = ""
        """The failure that the log speaks of last; empty when it says that all is well."""
        self._logged_at = -RELOG_S
        self._retry_at = 0.0
        self._prepare()

    def poll(self) -> None:
        """Begin a scrape, unless one is under way or a dead endpoint is being left alone."""
        if self._since is not None or self.closed:
            return
        now = self._shared.clock()
        if now < self._retry_at:
            return
        if self._spec is not self.endpoint.spec:
            self._disconnect()  # labels or metrics host have changed
            self._forget()
            self._prepare()
        if not self._authority:
            detail, hint = "no address to poll is known", "check what discovery says of the endpoint"
            self._report("no address", detail, hint)
            return
        self._since = now
        connection = self._connection
        if connection is not None and connection.usable:
            self._ask(connection)
        else:
            self._connect()

    def overdue(self, now: float) -> None:
        """End a scrape that takes longer than ``TIMEOUT_S``."""
        if self._since is not None and now - self._since > TIMEOUT_S:
            what, hint = "request is not answered", "its port reachable"
            if self._connecting is not None:
                what = "connection is not accepted"
                if self._tls is not None:
                    what, hint = "TLS connection is not established", "its port speaks TLS"
            detail = f"the {what} within {TIMEOUT_S:g} s"
            hint = f"check that the model server is alive and {hint}"
            self.failed(ScrapeError("timeout", detail, hint), retry=False)

    def lapse(self, now: float) -> None:
        """Drop the attributes if they are too old to be believed."""
        if self._annotated_at is not None and now - self._annotated_at > self._shared.staleness_s:
            self._forget()

    def _forget(self) -> None:
        if self._annotated_at is not None:
            self._annotated_at = None
            for key in self._shared.attributes:
                self._shared.table.annotate(self.endpoint, key, None)

    def close(self) -> None:
        """Stop for good; nothing is written any more."""
        self.closed = True
        self._since = None
        self._disconnect()

    def received(self, body: bytes) -> None:
        """A complete answer."""
        self._since = None
        shared = self._shared
        table, endpoint = shared.table, self.endpoint
        if self.closed or table.generation[endpoint.slot] != endpoint.generation:
            return
        began = perf_counter()
        fresh, complaint = False, ""
        for kind, declared, read in self._readers:
            found = Measurements()
            try:
                found = read(body)
                refuse_undeclared(found.attributes, declared)
                fresh |= apply(table, endpoint, found)
            except UnreadablePageError as error:
                complaint = f"{kind} cannot read the answer: {error}"
                shared.errors.extract_error(shared.source.name.type, kind)
            except Exception:  # an extractor may come from outside; its defect must not stop the scraping
                complaint = f"{kind} failed on the answer"
                if complaint not in self.problem:
                    log.exception("%s failed on the answer of %s", kind, endpoint.spec.id)
                shared.errors.extract_error(shared.source.name.type, kind)
            if found.attributes is not None:
                self._annotated_at = shared.clock()
            if found.missing:
                shared.errors.extract_error(shared.source.name.type, kind)
                complaint = f"its metrics lack {', '.join(sorted(set(found.missing.values())))}"
        if fresh and shared.keeps_ledger:
            table.end_scrape(endpoint.slot, shared.clock())
        self._failures = 0
        spent = perf_counter() - began
        if spent > EXPENSIVE_S:
            self._retry_at = shared.clock() + spent / BUSY_SHARE
        self._report("missing series" if complaint else "", complaint, shared.hint)

    def failed(self, error: ScrapeError, *, retry: bool) -> None:
        """No answer. ``retry``: the server only closed an idle connection, so ask again on a new one."""
        self._disconnect()
        if self.closed:
            return
        if retry and self._since is not None:
            self._connect()
            return
        self._since = None
        self._failures += 1
        shared = self._shared
        pause = min(MAX_BACKOFF_S, shared.interval_s * 2 ** min(self._failures, 10))
        self._retry_at = shared.clock() + pause * shared.rng.uniform(0.75, 1.25)
        shared.errors.poll_error(shared.source.name.type)
        counts = shared.keeps_ledger or self._is_own_address
        if error.kind == NOBODY_LISTENS and counts and self._lives():
            shared.table.distrust(self.endpoint.slot, gone=self._is_own_address)
        self._report(error.kind, error.detail, error.hint)

    def _prepare(self) -> None:
        """Derive everything that follows from the endpoint's address and labels."""
        source = self._shared.source
        self._spec = self.endpoint.spec
        authority = self._authority = source.authority(self.endpoint)
        self._tls = source.tls(self.endpoint)
        # Metrics on a port of their own say nothing about the port that serves requests.
        self._is_own_address = authority == self.endpoint.key
        self._request = (
            f"GET {source.path} HTTP/1.1\r\nHost: {authority}\r\n"
            f"Accept: {source.accept}\r\nAccept-Encoding: identity\r\nUser-Agent: pointsman-epp\r\n\r\n"
        ).encode()
        self._readers: list[tuple[str, AbstractSet[DataKey[Any]], Reader]] = [
            (extractor.name.type, frozenset(extractor.produces), extractor.reader(self.endpoint))
            for extractor in source.extractors
        ]

    def _ask(self, connection: ScrapeConnection) -> None:
        if self._shared.keeps_ledger and self._lives():
            self._shared.table.begin_scrape(self.endpoint.slot)
        connection.request(self._request)

    def _lives(self) -> bool:
        """Whether the slot still belongs to this endpoint."""
        return bool(self._shared.table.generation[self.endpoint.slot] == self.endpoint.generation)

    def _connect(self) -> None:
        self._disconnect()
        self._tls = self._shared.source.tls(self.endpoint)  # certificates may have been renewed
        self._connecting = asyncio.get_running_loop().create_task(self._connect_and_ask())

    async def _connect_and_ask(self) -> None:
        host, port = split_host_port(self._authority)
        tls = self._tls
        connection = self._connection = ScrapeConnection(self)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, host, port, ssl=tls, server_hostname=host if tls else None
            )
        except OSError as error:
            self._connecting = None
            self.failed(_connect_error(host, port, error), retry=False)
            return
        self._connecting = None
        if self._is_own_address and self._lives():
            self._shared.table.reached(self.endpoint.slot, self._shared.clock())
        if connection.usable:
            self._ask(connection)
        else:
            self.failed(_connect_error(host, port, ConnectionResetError("closed at once")), retry=False)

    def _disconnect(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.abandon()
            self._connection = None

    def _report(self, kind: str, detail: str, hint: str) -> None:
        """Remember the present problem, and log it if it is news."""
        label = self._shared.label
        self.problem = f"{label}{detail}; {hint}" if kind else ""
        if kind == self._logged_kind:
            return
        now, spec = self._shared.clock(), self._spec
        if not kind:
            self._logged_kind = ""
            log.info("endpoint %s (%s): %sits metrics are read again", spec.id, spec.key, label)
        elif now - self._logged_at >= RELOG_S:
            self._logged_kind, self._logged_at = kind, now
            log.warning("endpoint %s (%s): %s%s; %s", spec.id, spec.key, label, detail, hint)


def _connect_error(host: str, port: int, error: OSError) -> ScrapeError:
    if isinstance(error, ssl.SSLError):
        return ScrapeError(
            "tls",
            f"TLS with port {port} of {host} fails ({error.reason or error})",
            "check scheme, caCertPath and the client certificate of the data source",
        )
    reason = error.strerror or str(error) or type(error).__name__
    return ScrapeError(
        NOBODY_LISTENS,
        f"port {port} of {host} cannot be reached ({reason})",
        "check that the model server runs and that the port of the data source is the right one",
    )
