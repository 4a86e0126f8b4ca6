"""The load study benchmark: the traffic of llm-d's published CPU study, replayed, next to its figures.

The study drove its picker (default scorers, ten simulated endpoints, behind Envoy in full duplex mode) with
short prompts at high rates, with very long prompts and with very long streamed answers, and published the
cores it used. Cores divided by the rate are CPU seconds per request; the same traffic through a real Envoy
and this picker gives ours. The machines differ, so the quotient of the two says an order of magnitude and
no more.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.envoy_config import Mode
from benchmarks.envoy_process import envoy_version
from benchmarks.extproc_plan import ExtProcOptions, Kind, Measurement, Scenario, Server, Variant
from benchmarks.extproc_rig import Rig
from benchmarks.machine import Machine, describe_machine
from benchmarks.tables import number, render_table
from simulator.tokenizer import TOKEN_BYTES

ENDPOINTS: Final = 10
BODY_OVERHEAD_BYTES: Final = 200
"""What a chat request has besides its prompt."""


class Published(msgspec.Struct, frozen=True):
    """Figures of the study; its hardware was GKE e2 and c3 instances, its load generator not ours."""

    epp_cores: float
    requests_per_s: float

    @property
    def cpu_ms_per_request(self) -> float:
        """CPU milliseconds of its picker per request."""
        return self.epp_cores / self.requests_per_s * 1000


class Case(msgspec.Struct, frozen=True):
    """One kind of traffic of the study."""

    name: str
    prompt_tokens: int
    published: Published
    rate: float = 0.0
    """Requests per second; 0 is the highest the machine carries in the closed loop."""
    streamed: bool = False
    """Whether the answer is the long stream."""

    def scenario(self, options: StudyOptions) -> Scenario:
        """The same as the ext_proc benchmark puts it."""
        kind = Kind.STREAM if self.streamed else Kind.PACED if self.rate else Kind.MAIN
        connections = options.stream_connections if self.streamed else options.connections
        return Scenario(
            kind, self.prompt_tokens * TOKEN_BYTES + BODY_OVERHEAD_BYTES, connections, rate=self.rate
        )


SHORT: Final = Published(epp_cores=4.9, requests_per_s=500)
LONG_PROMPT: Final = Published(epp_cores=1.5, requests_per_s=10)
LONG_ANSWER: Final = Published(epp_cores=3.7, requests_per_s=10)

CASES: Final = (
    Case("200-token prompts, 500 req/s", 200, SHORT, rate=500.0),
    Case("200-token prompts, highest rate", 200, SHORT),
    Case("100k-token prompts, 10 req/s", 100_000, LONG_PROMPT, rate=10.0),
    Case("10k-token answers, streamed", 200, LONG_ANSWER, streamed=True),
)


class StudyOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench study`."""

    connections: int = 16
    stream_connections: int = 4
    answer_tokens: int = 10_000
    """Chunks of a streamed answer, one token each."""
    token_interval_ms: float = 1.0
    seconds: float = 25.0
    """Longer than one streamed answer takes."""
    warmup_s: float = 1.5
    scrape_interval: str = "50ms"
    seed: int = 1

    def rig(self) -> ExtProcOptions:
        """The processes this needs."""
        return ExtProcOptions(
            connections=self.connections,
            sse_chunks=self.answer_tokens,
            sse_interval_ms=self.token_interval_ms,
            seconds=self.seconds,
            warmup_s=self.warmup_s,
            endpoints=ENDPOINTS,
            scrape_interval=self.scrape_interval,
            servers=(Server.EPP,),
            modes=(Mode.FULL_DUPLEX,),
            seed=self.seed,
        )


class Finding(msgspec.Struct, frozen=True):
    """What one case cost."""

    case: Case
    measurement: Measurement
    chunks_per_request: int

    @property
    def requests(self) -> float:
        """Requests the window's work amounts to; of streams, parts of one count as parts."""
        if self.case.streamed:
            return self.measurement.sse_chunks / self.chunks_per_request
        return self.measurement.requests

    def cpu_ms(self, process: str) -> float:
        """CPU milliseconds of a process per request."""
        return self.measurement.cpu_s.get(process, 0.0) * 1000 / self.requests if self.requests else 0.0

    @property
    def lead(self) -> float:
        """How many times the published figure is ours."""
        ours = self.cpu_ms("server")
        return self.case.published.cpu_ms_per_request / ours if ours else 0.0


class StudyResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    envoy: str
    options: StudyOptions
    findings: list[Finding]


def run(options: StudyOptions) -> StudyResult:
    """Replay every case; progress goes to stderr. Raises `BenchError` as the ext_proc benchmark does."""
    machine = describe_machine()
    variant = Variant(Server.EPP, Mode.FULL_DUPLEX)
    findings = []
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder,
        Rig(options.rig(), Path(folder)) as rig,
    ):
        for case in CASES:
            sys.stderr.write(f"{case.name}\n")
            measured = rig.measure(case.scenario(options), variant, 1)
            findings.append(Finding(case, measured, options.answer_tokens))
    return StudyResult(machine, envoy_version(), options, findings)


def complaints(result: StudyResult) -> list[str]:
    """What makes a figure worthless; no time is promised here."""
    return [
        f"{finding.case.name}: wrong or missing answers {finding.measurement.errors}"
        for finding in result.findings
        if finding.measurement.errors
    ]


def render(result: StudyResult) -> str:
    """The run as text for a terminal."""
    header = [
        "traffic",
        "req/s",
        "p50 ms",
        "Envoy ms/req",
        "EPP ms/req",
        "published ms/req",
        "published / EPP",
    ]
    rows = [
        [
            finding.case.name,
            number(finding.requests / finding.measurement.seconds, 1),
            number(finding.measurement.latency_us.p50 / 1000, 1),
            number(finding.cpu_ms("envoy"), 3),
            number(finding.cpu_ms("server"), 3),
            number(finding.case.published.cpu_ms_per_request, 1),
            number(finding.lead, 1),
        ]
        for finding in result.findings
    ]
    return render_table(header, rows)
