"""The payload processor's process: builds everything, owns everything, and ends it in order.

Start: configuration -> pipeline -> listeners. Nothing listens before the configuration is known to be good.
Between: the configuration is followed, and a new one takes the place of the running one between two requests;
exchanges under way keep the pipeline they began with. Signals and exit codes are ``dataplane.serving``'s.
"""

from __future__ import annotations

import logging
import random
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec

from dataplane.clock import SYSTEM_CLOCK
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
from ipp.admin import AdminPages, AdminServer
from ipp.handler import ProcessorHandler
from ipp.interfaces.handle import Handle
from ipp.metrics import IppMetrics
from ipp.options import IppOptions
from ipp.pipeline import Pipeline, load_pipeline
from ipp.policies import PolicyFiles, PolicyHolder
from ipp.registry import plugin_registry
from ipp.telemetry import Summariser, publisher
from ipp.verdict_log import VerdictLog

if TYPE_CHECKING:
    from dataplane.config.given import Given
    from ipp.receiving import Receiver

log = logging.getLogger(__name__)

STARTED: Final = "configuration"
"""Readiness condition: what the configuration needs has begun."""

GUARDRAILS: Final = "guardrails"
UNENFORCED: Final = (
    "the configuration has no plugin of type guardrails: nothing enforces the policies of --policies-file"
)

SWITCH_S: Final = 0.001
"""How long a thread that looks at a large body may go on while the event loop has something to do."""


def run(options: IppOptions) -> int:
    """Run a payload processor until a signal ends it. Returns the process's exit code."""
    sys.setswitchinterval(SWITCH_S)
    return run_process("ipp", options, lambda: Processor(options))


class Processor:
    """One payload processor with all its parts. Two can live in one process: nothing is global."""

    def __init__(self, options: IppOptions) -> None:
        self.options = options
        self.registry, self.packages = plugin_registry(external=options.external_plugins)
        self.metrics = IppMetrics(version("pointsman"))
        rng = random.Random()  # noqa: S311 - breaks ties, no secret
        self.policies = PolicyHolder(rng)
        self.verdicts = VerdictLog(self.metrics, options.name, options.valkey_url)
        self.policy_files = (
            PolicyFiles(options.policies_file, self.policies) if options.policies_file else None
        )
        self.metrics.numbers.computed(
            "pointsman_ipp_policies_last_reload_successful",
            "1 unless the newest policies were refused.",
            (),
            lambda: [((), 0 if self._policy_problems() else 1)],
        )
        self.handle = Handle(
            self.metrics,
            self.policies,
            self.verdicts,
            SYSTEM_CLOCK,
            rng,
            has_policies=bool(options.policies_file or options.xds_server),
        )
        self.health = HealthState((STARTED,))
        self._config_seen = FileSignature.of(options.config_file)
        """The configuration file before it was read: a change while the process starts is seen later."""
        self.pipeline, revision, given = self._first()
        self.handler = ProcessorHandler(self.pipeline, self.metrics)
        self.reloader = Reloader(
            lambda: read_config(options),
            self._apply,
            revision,
            self.metrics.numbers,
            prefix="pointsman_ipp_config_",
            given=given,
        )
        self.receiver = self._receiver(rng)
        self.processor = ExternalProcessor(
            self.handler.open,
            ProcessorLimits(
                max_body_bytes=options.max_request_body, request_timeout_s=options.request_timeout
            ),
            on_rejection=self.metrics.rejected,
        )
        services: dict[bytes, StreamFactory] = {PROCESS_METHOD: self.processor}
        if options.health_checking:
            services |= HealthService(self.health).services()
        self.server = ext_proc_server(options, services, self.health)
        self.health_server = ExtProcServer(
            ServerOptions(host=options.host, port=options.grpc_health_port, port_flag="--grpc-health-port"),
            HealthService(self.health).services(),
        )
        self.telemetry = publisher(options.valkey_url, self._summariser())
        self.admin = AdminServer(
            options.metrics_host, options.metrics_port, self._pages(), tls=metrics_tls(options)
        )

    def _first(self) -> tuple[Pipeline, str, Given | None]:
        """The configuration to start with: the control plane's last good one, else that of the flags."""
        if self.options.xds_server:
            from ipp.receiving import kept_configuration  # only here: the protocol's messages come with it

            kept = kept_configuration(self.options)
            if kept is not None:
                try:
                    return self._load(kept.text), kept.revision, kept
                except ConfigError as error:
                    log.warning("the last configuration %s is not used: %s", kept.revision, error)
        text = read_config(self.options)
        return self._load(text), revision_of(text), None

    def _summariser(self) -> Summariser:
        return Summariser(
            self.options.node_id,
            self.options.name,
            self.metrics,
            self.policies,
            self.verdicts,
            self.server.metrics,
            lambda: self.reloader.revision,
            lambda: not self.health.unmet(),
        )

    def _receiver(self, rng: random.Random) -> Receiver | None:
        """What hears the control plane, if there is one."""
        if not self.options.xds_server:
            return None
        from ipp.receiving import Receiver  # only here: grpc comes with it

        return Receiver(
            self.options,
            self.policies,
            self.reloader.take,
            self.metrics.numbers,
            rng,
            self.metrics.version,
        )

    def _load(self, text: bytes) -> Pipeline:
        return load_pipeline(
            text, self.handle, self.registry, allow_experimental=self.options.allow_experimental_plugins
        )

    async def _apply(self, text: bytes, revision: str) -> None:
        """Put a configuration in the place of the running one. ``ConfigError``: nothing has changed."""
        new, old = self._load(text), self.pipeline
        await new.start()
        if self.reloader.stopped:
            await new.close()
            raise ConfigError(STOPPING)
        bequeath(old.instances, new.instances)
        self.pipeline = self.handler.pipeline = new
        for warning in self._warnings():
            log.warning("%s", warning)
        await old.close()

    def _warnings(self) -> list[str]:
        """What an operator may not have meant of the configuration that runs."""
        types = {plugin.name.type for plugin in self.pipeline.instances.values()}
        is_unenforced = self.policy_files is not None and GUARDRAILS not in types
        return [*self.pipeline.warnings, *([UNENFORCED] if is_unenforced else ())]

    def _policy_problems(self) -> list[str]:
        of_files = [] if self.policy_files is None else self.policy_files.problems
        return [*of_files, *self.policies.refused]

    def _pages(self) -> AdminPages:
        return AdminPages(
            metrics=[self.metrics.numbers],
            collectors=[TransportCollector(self.server.metrics)],
            plugins=lambda: self.pipeline.instances,
            config=lambda: {
                "reload": self.reloader.describe(),
                "config": msgspec.to_builtins(self.pipeline.config),
                "plugins": {name: plugin.name.type for name, plugin in self.pipeline.instances.items()},
                "guardrails": self.policies.describe(),
                "controlPlane": None if self.receiver is None else self.receiver.describe(),
                "policyProblems": self._policy_problems(),
                "buffersRequests": self.pipeline.now().needs_request_body,
                "installedPlugins": self.packages,
                "warnings": self._warnings(),
                "flags": self.options.shown(),
            },
            reload=self.reload,
            not_ready=lambda: ", ".join(self.health.unmet()),
        )

    async def start(self) -> None:
        """Bring everything up; on failure nothing stays up. ``ConfigError`` for what an operator can mend."""
        for warning in (*self.options.warnings, *self._warnings()):
            log.warning("%s", warning)
        for plugin_type, package in self.packages.items():
            log.info("plugin %s comes from the installed package %s", plugin_type, package)
        try:
            if self.policy_files is not None:
                await self.policy_files.load()
            await self.pipeline.start()
            if self.receiver is not None:
                await self.receiver.load()
            await self.admin.start()
            await self.health_server.start()
            await self.server.start()
        except BaseException:
            await self.stop()
            raise
        if self.options.config_file and self.options.watch_config:
            self.reloader.watch(self.options.config_file, self._config_seen)
        if self.policy_files is not None:
            self.policy_files.watch()
        self.verdicts.start()
        if self.telemetry is not None:
            self.telemetry.start()
        self.health.set(STARTED, holds=True)
        log.info(
            "serving %s: ext_proc on %s, health on port %d, metrics on port %d",
            self.options.name,
            self.options.grpc_socket or f"port {self.server.port}",
            self.health_server.port,
            self.admin.port,
        )

    async def reload(self) -> list[str]:
        """Read the configuration and the policies; what is wrong with them."""
        problems = await self.reloader.reload()
        return problems + ([] if self.policy_files is None else await self.policy_files.reload())

    async def drain(self) -> None:
        """Refuse new work, let running streams finish within the drain timeout."""
        await self.server.drain(self.options.drain_timeout)

    async def stop(self) -> None:
        """End every part. Safe in any state."""
        await self.reloader.stop()
        if self.policy_files is not None:
            await self.policy_files.stop()
        if self.receiver is not None:
            await self.receiver.stop()
        await self.server.stop()
        await self.health_server.stop()
        await self.admin.stop()
        await self.pipeline.close()
        await self.policies.asking.close()
        await self.verdicts.stop()
        if self.telemetry is not None:
            await self.telemetry.stop()
