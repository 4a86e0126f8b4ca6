"""The discovery server as a process: listens until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal

from django.db import connection

from controlplane.core import changes
from controlplane.xds.server import XdsOptions, XdsServer
from dataplane.addresses import host_port
from dataplane.observability.pages import PageServer

log = logging.getLogger(__name__)


def run(options: XdsOptions) -> None:
    """Serve until SIGTERM or SIGINT. ``ConfigError`` or ``DatabaseError`` when it cannot begin."""
    changes.current()  # who cannot read the database at all should say so, and not to every worker
    connection.close()
    asyncio.run(_serve(options))


async def _serve(options: XdsOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = XdsServer(options)
    pages = None
    await server.start()
    try:
        if options.metrics_port is not None:
            pages = PageServer(
                options.metrics_host,
                options.metrics_port,
                [server.hub.metrics.numbers],
                lambda: "it is ending" if stop.is_set() else server.hub.not_ready(),
            )
            await pages.start()
        log.info("xDS running on %s", host_port(options.host, server.port))
        if pages is not None:
            log.info("metrics: http://%s/metrics", host_port(options.metrics_host, pages.port))
        await stop.wait()
        log.info("draining: %d streams", len(server.hub.sessions))
    finally:
        await server.stop()
        if pages is not None:
            await pages.stop()
