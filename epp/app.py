"""The picker process: builds everything, owns everything, and ends it in order.

Start: configuration -> plugin graph -> endpoints -> listeners. Nothing listens before the configuration is
known to be good, and readiness turns true only when the endpoints are known. A mistake in flags,
configuration or ports ends the start with every mistake said and exit code 2.

End: SIGTERM or SIGINT makes readiness false, tells Envoy by GOAWAY, lets running streams finish within
``--drain-timeout`` and exits 0. A second signal stops at once.

This is the only module that sees engines and plugins together.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import sys
from typing import Any, Final

import msgspec
import uvloop

from dataplane.clock import SYSTEM_CLOCK
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.extproc.health import HealthService, HealthState
from dataplane.extproc.http2 import Limits, StreamFactory
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor, ProcessorLimits
from dataplane.extproc.tls import TlsOptions
from dataplane.extproc.transport_metrics import TransportCollector
from dataplane.files import read_regular_file
from dataplane.observability import logs
from dataplane.plugin.base import TypedName
from epp.admin import AdminPages, AdminServer
from epp.datalayer.discovery_runtime import DiscoveryRuntime
from epp.datalayer.report import describe_endpoints
from epp.datalayer.scraper import Scraper
from epp.decisions import DecisionLog
from epp.director import Director
from epp.graph import PluginGraph, load_graph
from epp.handler import PickerHandler
from epp.interfaces.data_layer import EndpointDiscovery
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.metrics import EppMetrics, PrefixIndex
from epp.options import EppOptions
from epp.plugins.discovery.file import FileDiscovery, FileDiscoveryParams

log = logging.getLogger(__name__)

EXIT_USAGE: Final = 2
MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Requests leave no reference cycles behind, so the cyclic collector finds little and runs seldom."""

ENDPOINTS_KNOWN: Final = "endpoints"
"""Readiness condition: discovery has reported for the first time."""


def run(options: EppOptions) -> int:
    """Run a picker until a signal ends it. Returns the process's exit code."""
    logs.configure(options.log_level, json=options.log_json)
    try:
        return uvloop.run(_serve(options))
    except ConfigErrors as errors:
        source = options.config_file or "--config-text"
        for error in errors.errors:
            sys.stderr.write(f"pointsman epp: {source}: {error}\n")
    except ConfigError as error:
        sys.stderr.write(f"pointsman epp: {error}\n")
    return EXIT_USAGE


async def _serve(options: EppOptions) -> int:
    stop, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (again if stop.is_set() else stop).set())
    picker = Picker(options)
    await picker.start()
    try:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await stop.wait()
        log.info("draining: running streams have %g s; a second signal stops at once", options.drain_timeout)
        drain = asyncio.create_task(picker.drain())
        cut = asyncio.create_task(again.wait())
        await asyncio.wait((drain, cut), return_when=asyncio.FIRST_COMPLETED)
        for task in (drain, cut):
            task.cancel()
        await asyncio.gather(drain, cut, return_exceptions=True)
    finally:
        await picker.stop()
    return 0


class Picker:
    """One pool's picker with all its parts. Two can live in one process: nothing is global."""

    def __init__(self, options: EppOptions) -> None:
        self.options = options
        self.table = EndpointTable()
        self.metrics = EppMetrics(
            self.table, options.pool_name, stream_metrics=options.enable_grpc_stream_metrics
        )
        self.decisions = DecisionLog(options.decision_log_size)
        self.health = HealthState((ENDPOINTS_KNOWN,))
        handle = Handle(self.table, SYSTEM_CLOCK, random.Random())  # noqa: S311 - breaks ties, keeps no secret
        self.graph = load_graph(
            read_config(options),
            handle,
            allow_experimental=options.allow_experimental_plugins,
        )
        self.metrics.watch_prefix_indexes(prefix_indexes(self.graph))
        self.scraper = Scraper(
            self.table,
            [source for source, _ in self.graph.sources],
            self.metrics,
            base_interval_s=options.refresh_metrics_interval,
            staleness_s=options.metrics_staleness_threshold,
        )
        self.discovery = DiscoveryRuntime(
            discovery_of(self.graph, options.endpoints_file, handle),
            self.table,
            [self.scraper, self.metrics, *self.graph.endpoint_observers],
        )
        self.handler = PickerHandler(
            Director(
                self.table,
                self.graph,
                self.metrics,
                SYSTEM_CLOCK,
                use_subset=not options.disable_endpoint_subset_filter,
            ),
            self.metrics,
            self.decisions,
            SYSTEM_CLOCK,
            emit_scores=options.emit_endpoint_scores,
        )
        self.processor = ExternalProcessor(
            self.handler.open,
            ProcessorLimits(
                max_body_bytes=options.max_request_body, request_timeout_s=options.request_timeout
            ),
            observer=self.metrics if options.enable_grpc_stream_metrics else None,
        )
        self.server = self._ext_proc_server()
        self.health_server = ExtProcServer(
            ServerOptions(host=options.host, port=options.grpc_health_port, port_flag="--grpc-health-port"),
            HealthService(self.health).services(),
        )
        self.admin = AdminServer(options.metrics_host, options.metrics_port, self._pages())

    def _ext_proc_server(self) -> ExtProcServer:
        options = self.options
        services: dict[bytes, StreamFactory] = {PROCESS_METHOD: self.processor}
        if options.health_checking:
            services |= HealthService(self.health).services()
        tls = TlsOptions(
            cert_path=options.cert_path,
            reload=options.enable_cert_reload,
            min_version=options.tls_min_version,
            cipher_suites=options.tls_cipher_suites,
        )
        limits = Limits()
        if options.grpc_max_recv_msg_size is not None:
            limits = Limits(max_message_size=options.grpc_max_recv_msg_size)
        return ExtProcServer(
            ServerOptions(
                host=options.host,
                port=None if options.grpc_socket else options.grpc_port,
                unix_path=options.grpc_socket,
                unix_flag="--grpc-socket",
                tls=tls if options.secure_serving and not options.grpc_socket else None,
                limits=limits,
            ),
            services,
            health=self.health,
        )

    def _pages(self) -> AdminPages:
        return AdminPages(
            metrics=[self.metrics.numbers],
            collectors=[TransportCollector(self.server.metrics)],
            decisions=self.decisions.recent,
            decision=self.decisions.find,
            endpoints=lambda limit: describe_endpoints(
                self.table, SYSTEM_CLOCK, limit, self.scraper.problem, self.discovery.problems
            ),
            plugins=lambda: self.graph.instances,
            config=lambda: {
                "config": msgspec.to_builtins(self.graph.config),
                "plugins": {name: str(plugin.name.type) for name, plugin in self.graph.instances.items()},
                "warnings": list(self.graph.warnings),
                "flags": self.options.shown(),
            },
            not_ready=lambda: ", ".join(self.health.unmet()),
        )

    async def start(self) -> None:
        """Bring everything up; on failure nothing stays up. ``ConfigError`` for what an operator can mend."""
        for warning in (*self.options.warnings, *self.graph.warnings):
            log.warning("%s", warning)
        try:
            self.discovery.load()
            await self.admin.start()
            await self.health_server.start()
            await self.server.start()
            self.scraper.start()
            self.discovery.start()
        except BaseException:
            await self.stop()
            raise
        self.health.set(ENDPOINTS_KNOWN, holds=True)
        log.info(
            "serving pool %s: ext_proc on %s, health on port %d, metrics on port %d, %d endpoints",
            self.options.pool_name,
            self.options.grpc_socket or f"port {self.server.port}",
            self.health_server.port,
            self.admin.port,
            len(self.table),
        )

    async def drain(self) -> None:
        """Refuse new work, let running streams finish within the drain timeout."""
        await self.server.drain(self.options.drain_timeout)

    async def stop(self) -> None:
        """End every part. Safe in any state."""
        await self.server.stop()
        await self.discovery.stop()
        self.scraper.stop()
        await self.health_server.stop()
        await self.admin.stop()


def read_config(options: EppOptions) -> bytes | str:
    """The configuration's text; empty for the built-in default. ``ConfigError`` names the flag."""
    if not options.config_file:
        return options.config_text
    return read_regular_file(
        options.config_file, MAX_CONFIG_BYTES, path=f"--config-file {options.config_file}"
    )


def discovery_of(graph: PluginGraph, endpoints_file: str, handle: Handle) -> EndpointDiscovery:
    """What supplies the endpoints: the configuration's discovery, else ``--endpoints-file``, watched.

    ``ConfigError`` when nothing does, or both.
    """
    if endpoints_file:
        if graph.discovery is not None:
            raise ConfigError("excludes dataLayer.discovery of the configuration", path="--endpoints-file")
        name = TypedName("file-discovery", "--endpoints-file")
        return FileDiscovery(name, FileDiscoveryParams(path=endpoints_file, watch_file=True), handle)
    if graph.discovery is None:
        raise ConfigError(
            "nothing tells the picker its endpoints: name an endpoints file with --endpoints-file, or add a "
            "plugin of type file-discovery to the configuration and refer to it here",
            path="dataLayer.discovery",
        )
    return graph.discovery


def prefix_indexes(graph: PluginGraph) -> list[PrefixIndex]:
    """The plugins that keep a prefix index."""
    found: list[Any] = [plugin for plugin in graph.instances.values() if hasattr(plugin, "indexed_blocks")]
    return found
