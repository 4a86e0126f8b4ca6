"""The picker process: builds everything, owns everything, and ends it in order.

Start: configuration -> plugin graph -> endpoints -> listeners. Nothing listens before the configuration is
known to be good, and readiness turns true only when the endpoints are known. A mistake in flags,
configuration or ports ends the start with every mistake said and exit code 2.

Between: the configuration file and the objects are followed (``dataplane.config.reload``,
``epp.objects.source``); SIGHUP reads files at once.

End: SIGTERM or SIGINT makes readiness false, tells Envoy by GOAWAY, lets running streams finish within
``--drain-timeout`` and exits 0. A second signal stops at once.

This is the only module that sees engines and plugins together.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
from typing import TYPE_CHECKING, Final

import msgspec
import uvloop

from dataplane.clock import SYSTEM_CLOCK
from dataplane.config.given import Given
from dataplane.config.problems import ConfigErrors
from dataplane.config.reload import STOPPING, Reloader, revision_of
from dataplane.errors import ConfigError
from dataplane.extproc.health import HealthService, HealthState
from dataplane.extproc.http2 import Limits, StreamFactory
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor, ProcessorLimits
from dataplane.extproc.transport_metrics import TransportCollector
from dataplane.files import FileSignature, read_regular_file
from dataplane.observability import logs
from dataplane.server_tls import TlsOptions
from epp.admin import AdminPages, AdminServer
from epp.assembly import Assembler, Assembly, bequeath, close_plugins
from epp.datalayer.report import describe_endpoints
from epp.decisions import DecisionLog
from epp.explain.policy import ExplainPolicy
from epp.graph import PluginGraph, load_graph
from epp.graph.registry import plugin_registry
from epp.handler import PickerHandler
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.metrics import EppMetrics
from epp.objects.snapshot import ObjectHolder
from epp.objects.source import object_source, own_id
from epp.options import EppOptions
from epp.received import kept_configuration
from epp.resilience.guard import Guard
from epp.telemetry import publisher
from epp.tracing.setup import Tracing, read_settings
from epp.usage import usage_log

if TYPE_CHECKING:
    from dataplane.telemetry.publisher import Publisher

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
    picker = Picker(options)
    stop, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (again if stop.is_set() else stop).set())
    if not await _start_unless(stop, picker):
        return 0
    reloads: set[asyncio.Task[list[str]]] = set()

    def reload() -> None:
        task = loop.create_task(picker.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
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


async def _start_unless(stop: asyncio.Event, picker: Picker) -> bool:
    """Start; False when a signal ends it first, as it must when the endpoints file hangs."""
    starting, stopping = asyncio.create_task(picker.start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


class Picker:
    """One pool's picker with all its parts. Two can live in one process: nothing is global."""

    def __init__(self, options: EppOptions) -> None:
        self.options = options
        self.registry, self.packages = plugin_registry(external=options.external_plugins)
        self.table = EndpointTable()
        self.metrics = EppMetrics(
            self.table,
            options.pool_name,
            stream_metrics=options.enable_grpc_stream_metrics,
            legacy=options.legacy_metrics,
        )
        self.decisions = DecisionLog(options.decision_log_size)
        self.health = HealthState((ENDPOINTS_KNOWN,))
        self.handle = Handle(self.table, SYSTEM_CLOCK, random.Random())  # noqa: S311 - breaks ties, no secret
        self.objects = ObjectHolder()
        self.guard = Guard(self.table, SYSTEM_CLOCK, self.handle.rng, self.metrics.numbers)
        settings = read_settings(os.environ) if options.tracing else None
        self.tracing = None if settings is None else Tracing(settings, os.environ)
        with_spans = self.tracing is not None
        if self.tracing is not None:
            self.metrics.watch_spans(self.tracing.counts)
        self.assembler = Assembler(
            options, self.handle, self.metrics, self.objects, self.guard, with_spans=with_spans
        )
        self._config_seen = FileSignature.of(options.config_file)
        """The configuration file before it was read: a change while the picker starts is seen later."""
        self._is_started = False
        """Whether scrapers and discoveries run."""
        self.current, given = self._first(kept_configuration(options))
        self.assembler.connect(self.current)
        self.guard.configure(self.current.graph.config.resilience)
        self.reloader = self._reloader(given)
        self.object_source = object_source(
            options, self.objects, self.metrics.numbers, self.handle.rng, self.reloader.take
        )
        self.usage = usage_log(options, self.metrics.numbers)
        self.handler = PickerHandler(
            self.current.director,
            self.metrics,
            self.decisions,
            SYSTEM_CLOCK,
            emit_scores=options.emit_endpoint_scores,
            explain=ExplainPolicy.of(options.explain_sampling, options.explain_header),
            tracer=None if self.tracing is None else self.tracing.tracer,
            usage=self.usage,
        )
        self.processor = self._processor()
        self.metrics.watch_processor(self.processor)
        self.server = self._ext_proc_server()
        self.health_server = ExtProcServer(
            ServerOptions(host=options.host, port=options.grpc_health_port, port_flag="--grpc-health-port"),
            HealthService(self.health).services(),
        )
        self.telemetry = self._publisher()
        self.admin = AdminServer(
            options.metrics_host, options.metrics_port, self._pages(), tls=_metrics_tls(options)
        )

    def _processor(self) -> ExternalProcessor:
        options = self.options
        return ExternalProcessor(
            self.handler.open,
            ProcessorLimits(
                max_body_bytes=options.max_request_body, request_timeout_s=options.request_timeout
            ),
            observer=self.metrics if options.enable_grpc_stream_metrics else None,
            on_rejection=self.metrics.rejected,
        )

    def _publisher(self) -> Publisher | None:
        worker = self.options.xds_node_id or own_id(self.options)
        return publisher(
            self.options,
            worker,
            self.metrics,
            self.table,
            self.server.metrics,
            lambda: self.reloader.revision,
        )

    def _first(self, kept: Given | None) -> tuple[Assembly, Given | None]:
        """The configuration to start with: the control plane's last good one, else that of the flags."""
        if kept is not None:
            try:
                return self.assembler.assemble(self._load(kept.text), kept.revision, None), kept
            except ConfigError as error:
                log.warning("the control plane's last configuration %s is not used: %s", kept.revision, error)
        text = read_config(self.options)
        return self.assembler.assemble(self._load(text), revision_of(text), None), None

    def _reloader(self, given: Given | None) -> Reloader:
        return Reloader(
            lambda: read_config(self.options),
            self._apply,
            self.current.revision,
            self.metrics.numbers,
            prefix="pointsman_epp_config_",
            given=given,
            relabel=self._relabel,
        )

    def _relabel(self, revision: str) -> None:
        """What runs is the text of another revision as well."""
        self.handler.director.revision = revision

    def _load(self, text: bytes) -> PluginGraph:
        return load_graph(
            text,
            self.handle,
            allow_experimental=self.options.allow_experimental_plugins,
            registry=self.registry,
        )

    async def _apply(self, text: bytes, revision: str) -> None:
        """Put a configuration in the place of the running one. ``ConfigError``: nothing has changed."""
        old = self.current
        new = self.assembler.assemble(self._load(text), revision, old)
        graph = new.graph
        found = None if new.discovery is old.discovery else await new.discovery.read()
        if self.reloader.stopped:
            raise ConfigError(STOPPING)
        bequeath(old.graph, graph)
        self.guard.configure(graph.config.resilience)
        self.table.attributes.retain(graph.endpoint_attributes)
        self.assembler.connect(new)
        if found is not None:
            new.discovery.apply(found)
        self.current = new
        self.handler.director = new.director
        for warning in graph.warnings:
            log.warning("%s", warning)
        if new.scraper is not old.scraper:
            old.scraper.stop()
            if self._is_started:
                new.scraper.start()
        if new.discovery is not old.discovery:
            await old.discovery.stop()
            if self._is_started:
                new.discovery.start()
        await close_plugins(old.graph)

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
                self.table,
                SYSTEM_CLOCK,
                limit,
                self.current.scraper.problem,
                self.current.discovery.problems,
                self.guard.describe,
            ),
            plugins=lambda: self.current.graph.instances,
            config=lambda: {
                "reload": self.reloader.describe(),
                "config": msgspec.to_builtins(self.current.graph.config),
                "plugins": {n: plugin.name.type for n, plugin in self.current.graph.instances.items()},
                "installedPlugins": self.packages,
                "warnings": list(self.current.graph.warnings),
                "flags": self.options.shown(),
            },
            objects=lambda limit: (
                {"message": "there are no objects: neither --objects-file nor --xds-server says from where"}
                if self.object_source is None
                else self.object_source.describe(
                    limit, (endpoint.spec.port for endpoint in self.table.all().endpoints)
                )
            ),
            reload=self.reload,
            not_ready=lambda: ", ".join(self.health.unmet()),
            diagnostics=self.options.enable_pprof,
        )

    async def start(self) -> None:
        """Bring everything up; on failure nothing stays up. ``ConfigError`` for what an operator can mend."""
        for warning in (*self.options.warnings, *self.current.graph.warnings):
            log.warning("%s", warning)
        for plugin_type, package in self.packages.items():
            log.info("plugin %s comes from the installed package %s", plugin_type, package)
        try:
            await self.current.discovery.load()
            self.guard.settle()
            if self.object_source is not None:
                await self.object_source.load()
            await self.admin.start()
            await self.health_server.start()
            await self.server.start()
            self._is_started = True
            self.current.scraper.start()
            self.current.discovery.start()
        except BaseException:
            await self.stop()
            raise
        if self.options.config_file and self.options.watch_config:
            self.reloader.watch(self.options.config_file, self._config_seen)
        if self.object_source is not None:
            self.object_source.watch()
        for each in (self.usage, self.telemetry):
            if each is not None:
                each.start()
        self.health.set(ENDPOINTS_KNOWN, holds=True)
        log.info(
            "serving pool %s: ext_proc on %s, health on port %d, metrics on port %d, %d endpoints",
            self.options.pool_name,
            self.options.grpc_socket or f"port {self.server.port}",
            self.health_server.port,
            self.admin.port,
            len(self.table),
        )

    async def reload(self) -> list[str]:
        """Read every file that is followed but the endpoints; what is wrong with them."""
        problems = await self.reloader.reload()
        return problems + ([] if self.object_source is None else await self.object_source.reload())

    async def drain(self) -> None:
        """Refuse new work, let running streams finish within the drain timeout."""
        await self.server.drain(self.options.drain_timeout)

    async def stop(self) -> None:
        """End every part. Safe in any state."""
        await self.reloader.stop()
        if self.object_source is not None:
            await self.object_source.stop()
        await self.server.stop()
        await self.current.discovery.stop()
        self.current.scraper.stop()
        await self.health_server.stop()
        await self.admin.stop()
        await close_plugins(self.current.graph)
        for each in (self.telemetry, self.usage):
            if each is not None:
                await each.stop()
        if self.tracing is not None:
            await self.tracing.stop()


def _metrics_tls(options: EppOptions) -> TlsOptions | None:
    """How the metrics port speaks TLS; None = it does not."""
    if not options.metrics_cert_dir:
        return None
    return TlsOptions(
        cert_path=options.metrics_cert_dir,
        reload=True,
        min_version=options.tls_min_version,
        cipher_suites=options.tls_cipher_suites,
        alpn=("http/1.1",),
        client_ca_file=options.metrics_client_ca_file,
        path_flag="--metrics-cert-dir",
        client_ca_flag="--metrics-client-ca-file",
    )


def read_config(options: EppOptions) -> bytes:
    """The configuration's text; empty for the built-in default. ``ConfigError`` names the flag."""
    if not options.config_file:
        return options.config_text.encode("utf-8", "surrogateescape")
    return read_regular_file(
        options.config_file, MAX_CONFIG_BYTES, path=f"--config-file {options.config_file}"
    )
