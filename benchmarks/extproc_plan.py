"""What the ext_proc benchmark measures: variants, scenarios, and the figures of one measurement."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from benchmarks.envoy_config import Mode
from benchmarks.machine import Machine
from benchmarks.stats import Summary


class Server(StrEnum):
    """What answers Envoy's ext_proc calls."""

    NONE = "envoy"
    """Nothing: Envoy alone."""
    EPP = "epp"
    TRANSPORT = "transport"
    """The picker's transport without the picker."""
    GRPC_AIO = "grpc-aio"
    """The least server one writes with grpc.aio."""
    PASSING = "passing"
    """The transport, collecting requests and passing everything on."""
    IPP = "ipp"
    """A payload processor with guardrails, and no policy for them."""
    IPP_OTHERS = "ipp-others"
    """One with a policy that holds for other models."""


class Variant(NamedTuple):
    """One configuration under test."""

    server: Server
    mode: Mode | None
    """None for Envoy alone."""

    @property
    def name(self) -> str:
        """`epp/full-duplex`, for tables and file names."""
        return self.server if self.mode is None else f"{self.server}/{self.mode}"


class Kind(StrEnum):
    """What a scenario is about."""

    MAIN = "main"
    PACED = "paced"
    LARGE = "large"
    STREAM = "stream"


class Scenario(msgspec.Struct, frozen=True):
    """One kind of traffic."""

    kind: Kind
    body_bytes: int
    connections: int
    rate: float = 0.0
    """Requests per second; 0 is the closed loop."""

    @property
    def name(self) -> str:
        """Short name for tables."""
        what = "stream" if self.kind is Kind.STREAM else f"{self.body_bytes} B body"
        return f"{what} at {self.rate:g} req/s" if self.rate else what


class ExtProcOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench extproc`."""

    connections: int = 16
    body_bytes: int = 2048
    paced_rate: float = 500.0
    """Requests per second of the scenario in which all variants carry the same load; 0 leaves it out."""
    large_body_bytes: int = 40_960
    """0 leaves the scenario out."""
    sse_chunks: int = 100
    """0 leaves the scenario out."""
    sse_interval_ms: float = 5.0
    sse_connections: int = 8
    seconds: float = 6.0
    warmup_s: float = 1.5
    repeat: int = 3
    endpoints: int = 8
    scrape_interval: str = "50ms"
    servers: tuple[Server, ...] = (Server.NONE, Server.EPP, Server.GRPC_AIO)
    modes: tuple[Mode, ...] = tuple(Mode)
    baseline_uvloop: bool = False
    pin: bool = False
    quiet: float = 0.0
    """Cores other processes may use in a window that counts; 0 counts every window."""
    seed: int = 1

    def scenarios(self) -> list[Scenario]:
        """What to measure, in order."""
        chosen = [Scenario(Kind.MAIN, self.body_bytes, self.connections)]
        if self.paced_rate:
            chosen.append(Scenario(Kind.PACED, self.body_bytes, self.connections, self.paced_rate))
        if self.large_body_bytes:
            chosen.append(Scenario(Kind.LARGE, self.large_body_bytes, self.connections))
        if self.sse_chunks:
            chosen.append(Scenario(Kind.STREAM, self.body_bytes, self.sse_connections))
        return chosen

    def variants(self, scenario: Scenario | None = None) -> list[Variant]:
        """Configurations to compare; streams are compared where chunks pass the ext_proc server."""
        modes = self.modes
        if scenario is not None and scenario.kind is Kind.STREAM:
            modes = tuple(mode for mode in modes if mode is Mode.FULL_DUPLEX)
        alone = [Variant(Server.NONE, None)] if Server.NONE in self.servers else []
        return alone + [
            Variant(server, mode) for mode in modes for server in self.servers if server is not Server.NONE
        ]


class Measurement(msgspec.Struct, frozen=True):
    """The figures of one variant in one window."""

    scenario: Scenario
    server: Server
    mode: Mode | None
    round: int
    seconds: float
    requests: int
    errors: dict[str, int]
    latency_us: Summary
    latency_histogram_us: list[tuple[float, int]]
    cpu_s: dict[str, float]
    """CPU seconds of each process in the window: envoy, server, upstream, load."""
    sse_chunks: int
    """Chunks of SSE streams that reached the clients."""
    ext_proc: dict[str, int]
    """What Envoy's ext_proc counters rose by."""
    foreign_cores: float
    """CPU used by processes that are no part of this measurement, in cores."""
    stolen_cores: float
    """CPU the hypervisor gave to others, in cores."""

    @property
    def variant(self) -> Variant:
        """Which configuration this is."""
        return Variant(self.server, self.mode)

    @property
    def requests_per_s(self) -> float:
        """Complete and right answers per second."""
        return self.requests / self.seconds

    def cpu_us_per_request(self, process: str) -> float:
        """CPU time of a process per request, in microseconds; 0 without such a process or requests."""
        return self.cpu_s.get(process, 0.0) * 1e6 / self.requests if self.requests else 0.0

    def cpu_us_per_chunk(self, process: str) -> float:
        """CPU time of a process per SSE chunk, whole requests included, in microseconds."""
        return self.cpu_s.get(process, 0.0) * 1e6 / self.sse_chunks if self.sse_chunks else 0.0


class ExtProcResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    envoy: str
    options: ExtProcOptions
    measurements: list[Measurement]
    epp_idle_cores: float | None
    """What the picker uses without traffic, scraping included."""
    epp_resident_bytes: int | None
    """The picker's memory at the end."""
