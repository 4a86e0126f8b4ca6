"""The picker process: builds everything, owns everything, and ends it in order.

Start: configuration -> plugin graph -> endpoints -> listeners. Nothing listens before the configuration is
known to be good, and readiness turns true only when the endpoints are known.

Between: the configuration file and the objects are followed (``dataplane.config.reload``,
``epp.objects.source``); SIGHUP reads files at once.

End: readiness becomes false, Envoy is told by GOAWAY, and running streams finish within
``--drain-timeout``. Signals and exit codes are ``dataplane.serving``'s.

This is the only module that sees engines and plugins together.
"""

from __future__ import annotations

import logging
import os
import random
from typing import TYPE_CHECKING, Final

import msgspec

from dataplane.clock import SYSTEM_CLOCK
from dataplane.config.given import Given
from dataplane.config.reload import STOPPING, Reloader, revision_of
from dataplane.errors import ConfigError
from dataplane.extproc.health import HealthService, HealthState
from dataplane.extproc.http2 import StreamFactory
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor, ProcessorLimits
from dataplane.extproc.transport_metrics import TransportCollector
from dataplane.files import FileSignature
from dataplane.plugin.heir import bequeath
from dataplane.serving import ext_proc_server, metrics_tls, read_config, run_process
from epp.admin import AdminPages, AdminServer
from epp.assembly import Assembler, Assembly, close_plugins
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

ENDPOINTS_KNOWN: Final = "endpoints"
"""Readiness condition: discovery has reported for the first time."""


def run(options: EppOptions) -> int:
    """Run a picker until a signal ends it. Returns the process's exit code."""
    return run_process("epp", options, lambda: Picker(options))


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
            options.metrics_host, options.metrics_port, self._pages(), tls=metrics_tls(options)
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
        bequeath(old.graph.instances, graph.instances)
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
        return ext_proc_server(options, services, self.health)

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
