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
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.registry import Collector

from dataplane.errors import did_you_mean
from dataplane.observability.debug_pages import encoded, index_of, json_page, limit_of, plugin_states
from dataplane.observability.exposition import MetricSet
from dataplane.observability.pages import PageServer, text_page
from dataplane.plugin.base import Plugin
from dataplane.server_tls import TlsOptions
from epp.decisions import DecisionQuery
from epp.diagnostics import MAX_SECONDS, Profiler, stacks

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

MAX_DECISIONS: Final = 200
MAX_ENDPOINTS: Final = 20_000
MAX_OBJECTS: Final = 5000
DEFAULT_PROFILE_S: Final = 5


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


class AdminServer(PageServer):
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
        super().__init__(
            host,
            port,
            pages.metrics,
            pages.not_ready,
            collectors=pages.collectors,
            port_flag=port_flag,
            tls=tls,
        )
        self._pages = pages
        self._profiler = Profiler()

    def routes(self) -> list[web.RouteDef]:
        """The debug pages."""
        from aiohttp import web

        found = [
            web.get("/debug/decisions", self._decisions),
            web.get("/debug/decisions/{request_id:.+}", self._decision),
            web.get("/debug/endpoints", self._endpoints),
            web.get("/debug/objects", self._objects),
            web.get("/debug/plugins/state", self._plugins),
            web.get("/debug/config", self._config),
            web.post("/debug/reload", self._reload),
            web.get("/", self._index),
        ]
        if self._pages.diagnostics:
            found += [web.get("/debug/stacks", self._stacks), web.get("/debug/profile", self._profile)]
        return found

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._profiler.stop()
        await super().stop()

    async def _index(self, _: web.Request) -> web.StreamResponse:
        return text_page(index_of(__doc__))

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        return await _listing(request, self._pages.decisions(_decision_query(request)))

    async def _decision(self, request: web.Request) -> web.StreamResponse:
        request_id = request.match_info["request_id"]
        found = iter(self._pages.decision(request_id))
        newest = next(found, None)
        if newest is not None:
            return await _listing(request, chain((newest,), found))
        return json_page(
            {
                "error": f"no decision of request {request_id!r} is kept; see --decision-log-size and "
                "--explain-sampling"
            },
            404,
        )

    async def _endpoints(self, request: web.Request) -> web.StreamResponse:
        return json_page(self._pages.endpoints(limit_of(request, default=1000, most=MAX_ENDPOINTS)))

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        return json_page(self._pages.objects(limit_of(request, default=1000, most=MAX_OBJECTS)))

    async def _config(self, _: web.Request) -> web.StreamResponse:
        return json_page(self._pages.config())

    async def _reload(self, _: web.Request) -> web.StreamResponse:
        problems = await self._pages.reload()
        return json_page({"refused": problems}, 400 if problems else 200)

    async def _stacks(self, _: web.Request) -> web.StreamResponse:
        return text_page(stacks())

    async def _profile(self, request: web.Request) -> web.StreamResponse:
        seconds = limit_of(request, default=DEFAULT_PROFILE_S, most=MAX_SECONDS, name="seconds")
        profile = await self._profiler.profile(seconds)
        if profile is None:
            return text_page("another profile is being made; try again when it is done\n", status=409)
        return text_page(profile)

    async def _plugins(self, _: web.Request) -> web.StreamResponse:
        return json_page(await plugin_states(self._pages.plugins()))


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
        limit=limit_of(request, default=20, most=MAX_DECISIONS),
        model=request.query.get("model", ""),
        endpoint=request.query.get("endpoint", ""),
        ending=request.query.get("ending", ""),
        traced=traced == "true",
    )


async def _listing(request: web.Request, decisions: Iterable[Any]) -> web.StreamResponse:
    """Decisions as JSON, one a slice: with a thousand endpoints each is a long text."""
    from aiohttp import web

    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    with contextlib.suppress(ConnectionResetError):
        await response.prepare(request)
        separator = b'{"decisions": ['
        for decision in decisions:
            await response.write(separator + encoded(decision))
            separator = b","
            await asyncio.sleep(0)
        await response.write(b"]}\n" if separator == b"," else separator + b"]}\n")
        await response.write_eof()
    return response
