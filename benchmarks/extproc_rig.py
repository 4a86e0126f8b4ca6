"""The processes of the ext_proc benchmark, all on loopback, and the windows in which they are measured.

One upstream serves all variants. Every variant has its own Envoy, so that no counter, connection or warm
cache is shared; ext_proc servers and Envoys that are not measured are paused.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from benchmarks.children import BenchError, Child, Worker
from benchmarks.cpu import TICKS_PER_SECOND, machine_ticks, resident_bytes
from benchmarks.envoy_config import Balancing, bootstrap
from benchmarks.envoy_process import Envoy
from benchmarks.epp_process import Epp
from benchmarks.extproc_plan import ExtProcOptions, Kind, Measurement, Scenario, Server, Variant
from benchmarks.ipp_process import OTHERS_POLICY, Ipp
from benchmarks.load import LoadReport
from benchmarks.upstream import Ready

BASELINES = {
    Server.TRANSPORT: "benchmarks.baseline_transport",
    Server.GRPC_AIO: "benchmarks.baseline_grpc_aio",
    Server.PASSING: "benchmarks.baseline_passing",
}
PROCESSORS: dict[Server, list[dict[str, Any]]] = {Server.IPP: [], Server.IPP_OTHERS: [OTHERS_POLICY]}
"""With the documents of their policies."""

IDLE_WINDOW_S = 3.0

MOST_BODIES = 256
FEWEST_BODIES = 16
BODIES_MEMORY_BYTES = 64 * 1024 * 1024
"""How many distinct bodies the load generator rotates: as many as fit here, within the two bounds."""


class Rig:
    """A context manager that runs the processes; `measure` takes one window."""

    def __init__(self, options: ExtProcOptions, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.stack = ExitStack()
        self.servers: dict[Server, Child] = {}
        self.envoys: dict[Variant, Envoy] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    def start(self) -> None:
        """Start everything and pause what will be measured in turn."""
        options = self.options
        upstream = Worker(
            "upstream",
            "benchmarks.upstream",
            [
                f"--endpoints={options.endpoints}",
                f"--sse-chunks={options.sse_chunks}",
                f"--sse-interval-ms={options.sse_interval_ms}",
            ],
            self.folder,
        )
        self.upstream = self.stack.enter_context(upstream)
        self.upstream_ready = msgspec.json.decode(self.upstream.read_line(), type=Ready)
        endpoints = [f"127.0.0.1:{port}" for port in self.upstream_ready.ports]
        addresses = self.start_servers(endpoints)
        for variant in options.variants():
            balancing = Balancing.PICKED if variant.mode else Balancing.ROUND_ROBIN
            config = bootstrap(
                endpoints,
                balancing,
                ext_proc=addresses.get(variant.server, ""),
                **({"mode": variant.mode} if variant.mode else {}),
            )
            name = f"envoy-{variant.name.replace('/', '-')}"
            self.envoys[variant] = self.stack.enter_context(Envoy(name, config, self.folder))
        if options.pin:
            self.pin()
        for child in [*self.envoys.values(), *self.servers.values()]:
            child.pause()

    def start_servers(self, endpoints: list[str]) -> dict[Server, str]:
        """Start the ext_proc servers that are wanted and return where they listen."""
        options = self.options
        addresses: dict[Server, str] = {}
        if Server.EPP in options.servers:
            epp = self.stack.enter_context(
                Epp(endpoints, self.folder, scrape_interval=options.scrape_interval)
            )
            self.servers[Server.EPP] = epp
            addresses[Server.EPP] = epp.address
        for server, policies in PROCESSORS.items():
            if server in options.servers:
                ipp = self.stack.enter_context(Ipp(server, self.folder, policies))
                self.servers[server] = ipp
                addresses[server] = ipp.address
        for server, module in BASELINES.items():
            if server in options.servers:
                uvloop = ["--uvloop"] if server is Server.GRPC_AIO and options.baseline_uvloop else []
                named = [] if server is Server.PASSING else ["--endpoints", ",".join(endpoints)]
                arguments = [*named, *uvloop]
                baseline = self.stack.enter_context(Worker(server, module, arguments, self.folder))
                self.servers[server] = baseline
                addresses[server] = f"127.0.0.1:{int(baseline.read_line())}"
        return addresses

    def pin(self) -> None:
        """Envoy on one CPU, the ext_proc servers on another; upstream and load stay free."""
        for envoy in self.envoys.values():
            envoy.pin(0)
        for server in self.servers.values():
            server.pin(1)

    @contextmanager
    def running(self, *children: Child) -> Iterator[None]:
        """Let paused processes run for a while."""
        for child in children:
            child.resume()
        try:
            yield
        finally:
            for child in children:
                child.pause()

    def start_load(self, scenario: Scenario, target: str) -> Worker:
        """A load generator for one window."""
        stream = scenario.kind is Kind.STREAM
        ready = self.upstream_ready
        arguments = [
            f"--target={target}",
            f"--connections={scenario.connections}",
            f"--body-bytes={scenario.body_bytes}",
            f"--seed={self.options.seed}",
            f"--rate={scenario.rate}",
            f"--bodies={max(FEWEST_BODIES, min(MOST_BODIES, BODIES_MEMORY_BYTES // scenario.body_bytes))}",
            f"--expect-bytes={ready.stream_bytes if stream else ready.answer_bytes}",
            *(["--stream"] if stream else []),
        ]
        return Worker("load", "benchmarks.load", arguments, self.folder)

    def measure(self, scenario: Scenario, variant: Variant, number: int) -> Measurement:
        """Run one variant under load and return its figures; raises `BenchError` when it cannot answer."""
        envoy = self.envoys[variant]
        server = self.servers.get(variant.server)
        processes: dict[str, Child] = {"envoy": envoy, "upstream": self.upstream}
        if server is not None:
            processes["server"] = server
        with self.running(*(child for child in (envoy, server) if child is not None)):
            load = self.start_load(scenario, envoy.address)
            with load:
                processes["load"] = load
                time.sleep(self.options.warmup_s)
                counters = envoy.ext_proc_counters()
                load.ask("mark")
                cpu_before = {name: child.cpu_seconds() for name, child in processes.items()}
                machine_before = machine_ticks()
                time.sleep(self.options.seconds)
                machine_after = machine_ticks()
                cpu_after = {name: child.cpu_seconds() for name, child in processes.items()}
                report = msgspec.json.decode(load.ask("stop"), type=LoadReport)
                counters_after = envoy.ext_proc_counters()
        cpu = {name: cpu_after[name] - cpu_before[name] for name in processes}
        busy = (machine_after.busy - machine_before.busy) / TICKS_PER_SECOND
        stolen = (machine_after.stolen - machine_before.stolen) / TICKS_PER_SECOND
        if not report.requests:
            raise BenchError(f"{variant.name} answered no request: {report.errors or 'nothing came back'}")
        stream = scenario.kind is Kind.STREAM
        return Measurement(
            scenario=scenario,
            server=variant.server,
            mode=variant.mode,
            round=number,
            seconds=report.seconds,
            requests=report.requests,
            errors=report.errors,
            latency_us=report.latency_us,
            latency_histogram_us=report.latency_histogram_us,
            cpu_s=cpu,
            sse_chunks=report.payload_bytes // self.upstream_ready.stream_chunk_bytes if stream else 0,
            ext_proc={name: value - counters.get(name, 0) for name, value in counters_after.items()},
            foreign_cores=max(0.0, busy - sum(cpu.values())) / report.seconds,
            stolen_cores=stolen / report.seconds,
        )

    def idle_cores(self, server: Server) -> float | None:
        """What an ext_proc server uses without traffic, in cores."""
        child = self.servers.get(server)
        if child is None:
            return None
        with self.running(child):
            time.sleep(0.5)
            before = child.cpu_seconds()
            time.sleep(IDLE_WINDOW_S)
            return (child.cpu_seconds() - before) / IDLE_WINDOW_S

    def memory(self, server: Server) -> int | None:
        """Resident memory of an ext_proc server."""
        child = self.servers.get(server)
        return None if child is None else resident_bytes(child.pid)
