"""Serves `/metrics`, `/healthz` and `/readyz` of a process over HTTP, and whatever else it shows.

Nothing here is on a request's path. Long texts are written in slices, with the loop turning in between. The
port is open to everybody who reaches it, unless clients need certificates, so connections are capped. aiohttp
is loaded by a process that serves pages, and not by one that imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from dataplane.errors import ConfigError
from dataplane.observability.exposition import CONTENT_TYPE, MetricSet
from dataplane.server_tls import ServerTls, TlsOptions

if TYPE_CHECKING:
    from aiohttp import web

MAX_CONNECTIONS: Final = 64
KEEPALIVE_S: Final = 30.0
HANDSHAKE_TIMEOUT_S: Final = 5.0


class PageServer:
    """Serves the pages on one port. ``ConfigError`` from ``start`` when it cannot listen.

    ``not_ready`` says why the process does not do its work, empty when it does; it is cheap and runs on the
    event loop. ``collectors`` are exposed after ``metrics``; the process's own is always there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Sequence[MetricSet],
        not_ready: Callable[[], str],
        *,
        collectors: Iterable[Collector] = (),
        port_flag: str = "--metrics-port",
        tls: TlsOptions | None = None,
    ) -> None:
        self._host = host
        self._wanted_port = port
        self._port_flag = port_flag
        self._metric_sets = metrics
        self._not_ready = not_ready
        self._tls_options = tls
        self._tls: ServerTls | None = None
        self.tls_reloads = self.tls_reload_failures = 0
        """How often a changed certificate was taken, and kept out because it could not be used."""
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        for collector in collectors:
            self._process.register(collector)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        sockets = self._server.sockets if self._server is not None else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    def routes(self) -> list[web.RouteDef]:
        """Pages beside the three."""
        return []

    async def start(self) -> None:
        """Listen."""
        if self._tls_options is not None:
            self._tls = ServerTls(self._tls_options, self)
        from aiohttp import web

        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *self.routes(),
            ]
        )
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEPALIVE_S, handle_signals=False)
        await runner.setup()
        self._runner = runner
        try:
            self._server = await self._listen(runner)
        except BaseException:
            await self.stop()
            raise
        if self._tls is not None:
            self._tls.start()

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._tls is not None:
            self._tls.stop()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _listen(self, runner: web.AppRunner) -> asyncio.Server:
        http = runner.server
        if http is None:
            raise RuntimeError("the runner is not set up")

        def connection() -> asyncio.Protocol:
            return http() if len(http.connections) < MAX_CONNECTIONS else _Refusal()

        create = partial(
            asyncio.get_running_loop().create_server,
            connection,
            backlog=MAX_CONNECTIONS,
            ssl=None if self._tls is None else self._tls.context,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_TIMEOUT_S,
        )
        try:
            if self._host:
                return await create(self._host, self._wanted_port)
            return await create(sock=_all_addresses(self._wanted_port))
        except OSError as error:
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on port {self._wanted_port} of {self._host or 'all addresses'}: {reason}; "
                f"free it or choose another one with {self._port_flag}",
                path=self._port_flag,
            ) from error

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        with contextlib.suppress(ConnectionResetError):
            await response.prepare(request)
            for block in self._exposition():
                await response.write(block)
                await asyncio.sleep(0)
            await response.write_eof()
        return response

    def _exposition(self) -> Iterator[bytes]:
        for metrics in self._metric_sets:
            for block in metrics.expose():
                yield block.encode()
        yield generate_latest(self._process)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return text_page("ok\n")

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        reason = self._not_ready()
        return text_page(f"not ready: {reason}\n", status=503) if reason else text_page("ok\n")


def text_page(text: str, status: int = 200) -> web.StreamResponse:
    """An answer of plain text."""
    from aiohttp import web

    return web.Response(text=text, status=status)


def _all_addresses(port: int) -> socket.socket:
    """One socket for IPv6 and IPv4 alike, where the system has both, so that port 0 means one port."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:  # IPv6 can be switched off
                raise
    return socket.create_server(("0.0.0.0", port))  # noqa: S104 - a host narrows it


class _Refusal(asyncio.Protocol):
    """Closes a connection at once: there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
