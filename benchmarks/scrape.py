"""The scrape benchmark: what reading the endpoints' metrics costs a picker that has nothing else to do.

A real picker reads the pages of many endpoints, which another process serves. The figure is the picker's CPU
time over the window, as a share of one core; the number of pages the endpoints served shows that the picker
kept the interval.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks.children import Worker
from benchmarks.cpu import resident_bytes
from benchmarks.epp_process import Epp
from benchmarks.machine import Machine, describe_machine
from benchmarks.tables import number, render_table
from benchmarks.upstream import Ready
from dataplane.units import parse_duration

LIMIT_CORES = 0.25
LIMIT_ENDPOINTS = 100
LIMIT_INTERVAL_S = 0.05
"""Promised: at most so many cores for so many endpoints at that interval; in proportion for other sizes."""


class ScrapeOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench scrape`."""

    endpoints: int = 100
    interval: str = "50ms"
    seconds: float = 10.0
    warmup_s: float = 3.0

    @property
    def interval_s(self) -> float:
        """The interval in seconds."""
        return parse_duration(self.interval)


class ScrapeResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    options: ScrapeOptions
    page_bytes: int
    seconds: float
    scrapes: int
    """Pages the endpoints served in the window."""
    cores: float
    """The picker's CPU time per second."""
    resident_bytes: int

    @property
    def us_per_scrape(self) -> float:
        """The picker's CPU time per page, in microseconds; what it does besides scraping counts too."""
        return self.cores * self.seconds * 1e6 / self.scrapes if self.scrapes else 0.0

    @property
    def kept(self) -> float:
        """Pages served as a share of those the interval asks for."""
        return self.scrapes / (self.options.endpoints * self.seconds / self.options.interval_s)

    @property
    def limit_cores(self) -> float:
        """What is promised for this many endpoints and this interval."""
        options = self.options
        return LIMIT_CORES * options.endpoints / LIMIT_ENDPOINTS * LIMIT_INTERVAL_S / options.interval_s


def run(options: ScrapeOptions) -> ScrapeResult:
    """Start the endpoints and a picker, let it settle, measure. Raises `BenchError`."""
    machine = describe_machine()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        upstream = stack.enter_context(
            Worker("upstream", "benchmarks.upstream", [f"--endpoints={options.endpoints}"], folder)
        )
        ready = msgspec.json.decode(upstream.read_line(), type=Ready)
        addresses = [f"127.0.0.1:{port}" for port in ready.ports]
        epp = stack.enter_context(Epp(addresses, folder, scrape_interval=options.interval))
        time.sleep(options.warmup_s)
        scrapes_before, cpu_before, started = int(upstream.ask("count")), epp.cpu_seconds(), time.monotonic()
        time.sleep(options.seconds)
        cpu_after, seconds = epp.cpu_seconds(), time.monotonic() - started
        scrapes = int(upstream.ask("count")) - scrapes_before
        return ScrapeResult(
            machine=machine,
            options=options,
            page_bytes=ready.metrics_bytes,
            seconds=seconds,
            scrapes=scrapes,
            cores=(cpu_after - cpu_before) / seconds,
            resident_bytes=resident_bytes(epp.pid),
        )


def complaints(result: ScrapeResult) -> list[str]:
    """What is not as promised; empty when all is well."""
    found = []
    if result.cores > result.limit_cores:
        found.append(f"{result.cores:.3f} cores, promised at most {result.limit_cores:.3f}")
    if result.kept < 0.9:
        found.append(f"only {result.kept:.0%} of the scrapes that the interval asks for took place")
    return found


def render(result: ScrapeResult) -> str:
    """The run as text for a terminal."""
    options = result.options
    row = [
        f"{options.endpoints} every {options.interval}",
        number(result.page_bytes),
        number(result.scrapes / result.seconds),
        f"{result.kept:.0%}",
        number(result.cores, 3),
        number(result.limit_cores, 3),
        number(result.us_per_scrape, 1),
        number(result.resident_bytes / 2**20),
    ]
    header = ["endpoints", "page B", "scrapes/s", "kept", "EPP cores", "limit", "µs/scrape", "memory MiB"]
    return render_table(header, [row])
