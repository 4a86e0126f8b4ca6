"""Metrics and debug pages of a payload processor over HTTP; nothing here is on a request's path.

    /metrics                Prometheus text
    /healthz, /readyz       200 ok; readiness answers 503 with the reason
    /debug/config           the effective configuration and its warnings
    /debug/plugins/state    what plugins show of their state
    /debug/reload           POST: read the configuration now; 400 with what is wrong with it

The port is open to everybody who reaches it, unless clients need certificates; nothing changes but by
reading files that are there anyway.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import Collector

from dataplane.observability.debug_pages import index_of, json_page, plugin_states
from dataplane.observability.exposition import MetricSet
from dataplane.observability.pages import PageServer, text_page
from dataplane.plugin.base import Plugin
from dataplane.server_tls import TlsOptions

if TYPE_CHECKING:
    from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPages:
    """What the pages show. All callables are cheap and run on the event loop."""

    metrics: Sequence[MetricSet]
    collectors: Sequence[Collector] = ()
    plugins: Callable[[], Mapping[str, Plugin]]
    """The plugin instances in use, by name."""
    config: Callable[[], Any]
    """The effective configuration and warnings."""
    reload: Callable[[], Awaitable[list[str]]]
    """Reads the files anew; answers with what is wrong with them."""
    not_ready: Callable[[], str]
    """Why requests are not served; empty when they are."""


class AdminServer(PageServer):
    """Serves the pages on one port. ``ConfigError`` from ``start`` when it cannot listen."""

    def __init__(self, host: str, port: int, pages: AdminPages, *, tls: TlsOptions | None = None) -> None:
        super().__init__(host, port, pages.metrics, pages.not_ready, collectors=pages.collectors, tls=tls)
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        """The debug pages."""
        from aiohttp import web

        return [
            web.get("/debug/config", self._config),
            web.get("/debug/plugins/state", self._plugins),
            web.post("/debug/reload", self._reload),
            web.get("/", self._index),
        ]

    async def _index(self, _: web.Request) -> web.StreamResponse:
        return text_page(index_of(__doc__))

    async def _config(self, _: web.Request) -> web.StreamResponse:
        return json_page(self._pages.config())

    async def _plugins(self, _: web.Request) -> web.StreamResponse:
        return json_page(await plugin_states(self._pages.plugins()))

    async def _reload(self, _: web.Request) -> web.StreamResponse:
        problems = await self._pages.reload()
        return json_page({"refused": problems}, 400 if problems else 200)
