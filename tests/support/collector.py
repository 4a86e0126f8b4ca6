"""A collector of traces: an OTLP/HTTP receiver that keeps what it is sent."""

from __future__ import annotations

import gzip
from typing import Any

from aiohttp import web

from tests.support.otlp_messages import ExportTraceServiceRequest


class Collector:
    """An OTLP/HTTP receiver of traces."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        """Service name and span."""
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            (service,) = (
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            )
            for scope in resource.scope_spans:
                self.spans += [(service, span) for span in scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")
