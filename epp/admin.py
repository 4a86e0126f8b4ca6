"""Metrics and debug pages over HTTP, for people and for Prometheus; nothing here is on a request's path.

    /metrics                        Prometheus text
    /healthz, /readyz               200 ok; readiness answers 503 with the reason
    /debug/decisions?limit=20       the last decisions, newest first; also model=, endpoint=, ending=, traced=
    /debug/decisions/<request id>   the kept decisions of a request, the newest 200
    /debug/endpoints?limit=1000     the endpoint table, age and problems of its data
    /debug/objects?limit=1000       objectives and model rewrites in use, and problems of their documents
    /debug/plugins/state            what plugins show of their state
    /debug/config                   the effective configuration and its warnings
    /debug/stacks                   threads and tasks, and where each is; with --enable-pprof
    /debug/profile?seconds=5        where the event loop's time goes, as counted stacks; with --enable-pprof
    /debug/reload                   POST: read configuration and objects now; 400 with what is wrong with them

The pages are callables that the application provides; they run on the event loop and return JSON-able data.
Long texts are written in slices, with the loop turning in between. The port is open to everybody who reaches
it, unless clients need certificates, so everything is bounded, connections included, and nothing changes but
by reading files that are there anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from dataplane.errors import ConfigError, did_you_mean
from dataplane.observability.exposition import CONTENT_TYPE, MetricSet
from dataplane.plugin.base import Plugin
from dataplane.server_tls import ServerTls, TlsOptions
from epp.decisions import DecisionQuery
from epp.diagnostics import MAX_SECONDS, Profiler, stacks
from epp.interfaces.state import StateDumper

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
MAX_DECISIONS: Final = 200
MAX_ENDPOINTS: Final = 20_000
MAX_OBJECTS: Final = 5000
DEFAULT_PROFILE_S: Final = 5
KEEPALIVE_S: Final = 30.0
HANDSHAKE_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPages:
    """What the pages show. All callables are cheap and run on the event loop."""

    metrics: Sequence[MetricSet]
    collectors: Sequence[Collector] = ()
    """Collectors of ``prometheus_client``, exposed after ``metrics``; the process's own is always there."""
    decisions: Callable[[DecisionQuery], Iterable[Any]]
    """The newest decisions that are asked for, made one by one."""
    decision: Callable[[str], Iterable[Any]]
    """Decisions of a request id; empty when none is kept."""
    endpoints: Callable[[int], Any]
    """The endpoint table, at most so many rows."""
    objects: Callable[[int], Any]
    """Objects of each kind, at most so many."""
    plugins: Callable[[], Mapping[str, Plugin]]
    """The plugin instances in use, by name."""
    config: Callable[[], Any]
    """The effective configuration and warnings."""
    reload: Callable[[], Awaitable[list[str]]]
    """Reads the files anew; answers with what is wrong with them."""
    not_ready: Callable[[], str]
    """Why requests are not served; empty when they are."""
    diagnostics: bool = False
    """Whether stacks and profiles are shown."""


class AdminServer:
    """Serves the pages on one port. ``ConfigError`` from ``start`` when it cannot listen."""

    def __init__(
        self,
        host: str,
        port: int,
        pages: AdminPages,
        *,
        port_flag: str = "--metrics-port",
        tls: TlsOptions | None = None,
    ) -> None:
        self._host = host
        self._wanted_port = port
        self._port_flag = port_flag
        self._pages = pages
        self._tls_options = tls
        self._tls: ServerTls | None = None
        self.tls_reloads = self.tls_reload_failures = 0
        """How often a changed certificate was taken, and kept out because it could not be used."""
        self._profiler = Profiler()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        for collector in pages.collectors:
            self._process.register(collector)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        sockets = self._server.sockets if self._server is not None else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    async def start(self) -> None:
        """Listen."""
        if self._tls_options is not None:
            self._tls = ServerTls(self._tls_options, self)
        from aiohttp import web  # loaded by a process that serves pages, not by one that imports this module

        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/debug/decisions", self._decisions),
                web.get("/debug/decisions/{request_id:.+}", self._decision),
                web.get("/debug/endpoints", self._endpoints),
                web.get("/debug/objects", self._objects),
                web.get("/debug/plugins/state", self._plugins),
                web.get("/debug/config", self._config),
                web.post("/debug/reload", self._reload),
                web.get("/", self._index),
            ]
        )
        if self._pages.diagnostics:
            app.add_routes([web.get("/debug/stacks", self._stacks), web.get("/debug/profile", self._profile)])
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
        self._profiler.stop()
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
        for metrics in self._pages.metrics:
            for block in metrics.expose():
                yield block.encode()
        yield generate_latest(self._process)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return _text("ok\n")

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        reason = self._pages.not_ready()
        return _text(f"not ready: {reason}\n", status=503) if reason else _text("ok\n")

    async def _index(self, _: web.Request) -> web.StreamResponse:
        lines = (__doc__ or "").split("\n\n")[1]
        return _text("\n".join(line.strip() for line in lines.splitlines()) + "\n")

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        return await _listing(request, self._pages.decisions(_decision_query(request)))

    async def _decision(self, request: web.Request) -> web.StreamResponse:
        request_id = request.match_info["request_id"]
        found = iter(self._pages.decision(request_id))
        newest = next(found, None)
        if newest is not None:
            return await _listing(request, chain((newest,), found))
        return _json(
            {
                "error": f"no decision of request {request_id!r} is kept; see --decision-log-size and "
                "--explain-sampling"
            },
            404,
        )

    async def _endpoints(self, request: web.Request) -> web.StreamResponse:
        return _json(self._pages.endpoints(_limit(request, default=1000, most=MAX_ENDPOINTS)))

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        return _json(self._pages.objects(_limit(request, default=1000, most=MAX_OBJECTS)))

    async def _config(self, _: web.Request) -> web.StreamResponse:
        return _json(self._pages.config())

    async def _reload(self, _: web.Request) -> web.StreamResponse:
        problems = await self._pages.reload()
        return _json({"refused": problems}, 400 if problems else 200)

    async def _stacks(self, _: web.Request) -> web.StreamResponse:
        return _text(stacks())

    async def _profile(self, request: web.Request) -> web.StreamResponse:
        seconds = _limit(request, default=DEFAULT_PROFILE_S, most=MAX_SECONDS, name="seconds")
        profile = await self._profiler.profile(seconds)
        if profile is None:
            return _text("another profile is being made; try again when it is done\n", status=409)
        return _text(profile)

    async def _plugins(self, _: web.Request) -> web.StreamResponse:
        now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        plugins: dict[str, Any] = {}
        for name, plugin in list(self._pages.plugins().items()):
            plugins[name] = _state(plugin)
            await asyncio.sleep(0)
        return _json({"timestamp": now, "plugins": plugins})


def _all_addresses(port: int) -> socket.socket:
    """One socket for IPv6 and IPv4 alike, where the system has both, so that port 0 means one port."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:  # IPv6 can be switched off
                raise
    return socket.create_server(("0.0.0.0", port))  # noqa: S104  # --metrics-host narrows it


class _Refusal(asyncio.Protocol):
    """Closes a connection at once: there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _state(plugin: Plugin) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": plugin.name.name, "type": plugin.name.type}
    if not isinstance(plugin, StateDumper):
        return shown | {"message": "keeps no state that it shows"}
    try:
        return shown | {"state": plugin.dump_state()}
    except Exception as error:  # one plugin's defect must not hide the state of the others
        log.exception("plugin %s cannot show its state", plugin.name)
        return shown | {"message": f"cannot show its state: {error}"}


def _limit(request: web.Request, *, default: int, most: int, name: str = "limit") -> int:
    """The query's ``limit``, or another number, between 1 and ``most``; 400 when it is no number."""
    from aiohttp import web

    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise web.HTTPBadRequest(text=f"{name} must be a number from 1 to {most}\n")
    return max(1, min(int(text), most))


def _decision_query(request: web.Request) -> DecisionQuery:
    """The query's filters; 400 for one that does not exist."""
    from aiohttp import web

    known = ("limit", "model", "endpoint", "ending", "traced")
    for name in request.query:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise web.HTTPBadRequest(text=f"unknown parameter {name[:60]!r}{hint}\n")
    traced = request.query.get("traced", "false")
    if traced not in {"true", "false"}:
        raise web.HTTPBadRequest(text="traced must be true or false\n")
    return DecisionQuery(
        limit=_limit(request, default=20, most=MAX_DECISIONS),
        model=request.query.get("model", ""),
        endpoint=request.query.get("endpoint", ""),
        ending=request.query.get("ending", ""),
        traced=traced == "true",
    )


def _text(text: str, status: int = 200) -> web.StreamResponse:
    from aiohttp import web

    return web.Response(text=text, status=status)


async def _listing(request: web.Request, decisions: Iterable[Any]) -> web.StreamResponse:
    """Decisions as JSON, one a slice: with a thousand endpoints each is a long text."""
    from aiohttp import web

    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    with contextlib.suppress(ConnectionResetError):
        await response.prepare(request)
        separator = b'{"decisions": ['
        for decision in decisions:
            await response.write(separator + _encoded(decision))
            separator = b","
            await asyncio.sleep(0)
        await response.write(b"]}\n" if separator == b"," else separator + b"]}\n")
        await response.write_eof()
    return response


def _encoded(data: Any) -> bytes:
    """Indented JSON. Of text that is no Unicode, such as the name of a file, what is none becomes "?"."""
    try:
        raw = msgspec.json.encode(data, enc_hook=_plain)
    except UnicodeEncodeError:
        raw = json.dumps(data, default=_plain, ensure_ascii=False).encode("utf-8", "replace")
    return msgspec.json.format(raw, indent=2)


def _json(data: Any, status: int = 200) -> web.StreamResponse:
    from aiohttp import web

    return web.Response(body=_encoded(data) + b"\n", status=status, content_type="application/json")


def _plain(value: Any) -> Any:
    """Numbers of numpy as numbers, anything else as text: a debug page is better incomplete than absent."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else str(value)
