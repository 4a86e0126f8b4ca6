"""The ext_proc benchmark: what a request costs with Envoy alone, with the picker, with plain grpc.aio.

The variants are measured in turn, round after round, and compared within a round, so that a machine that
gets slower or busier during the run moves numerator and denominator alike. The primary figure is CPU time
per request of each process: throughput depends on how the processes share the CPUs there are.
"""

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.cpu import TICKS_PER_SECOND, machine_ticks
from benchmarks.envoy_process import envoy_version
from benchmarks.extproc_plan import (
    ExtProcOptions,
    ExtProcResult,
    Measurement,
    Scenario,
    Server,
    Variant,
)
from benchmarks.extproc_rig import Rig
from benchmarks.machine import describe_machine

QUIET_ATTEMPTS = 4
QUIET_WAIT_S = 60.0
QUIET_SAMPLE_S = 0.5
"""Where quiet is asked for: windows tried, time waited before each, length of a look at the machine."""


def run(options: ExtProcOptions) -> ExtProcResult:
    """Measure everything; progress goes to stderr.

    Raises `BenchError` when a process does not come up, ends early, or answers nothing.
    """
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder, Rig(options, Path(folder)) as rig:
        idle_cores = rig.idle_cores(Server.EPP)
        measurements = measure_all(rig)
        return ExtProcResult(
            machine=machine,
            envoy=envoy_version(),
            options=options,
            measurements=measurements,
            epp_idle_cores=idle_cores,
            epp_resident_bytes=rig.memory(Server.EPP),
        )


def measure_all(rig: Rig) -> list[Measurement]:
    """Scenario after scenario, round after round, variant after variant."""
    measurements = []
    for scenario in rig.options.scenarios():
        for number in range(1, rig.options.repeat + 1):
            for variant in rig.options.variants(scenario):
                measured = measure_undisturbed(rig, scenario, variant, number)
                measurements.append(measured)
                sys.stderr.write(progress(measured) + "\n")
    return measurements


def measure_undisturbed(rig: Rig, scenario: Scenario, variant: Variant, number: int) -> Measurement:
    """One window; where quiet is asked for, the first quiet one of a few, else the quietest of them."""
    bound = rig.options.quiet
    if not bound:
        return rig.measure(scenario, variant, number)
    tried: list[Measurement] = []
    while len(tried) < QUIET_ATTEMPTS:
        await_quiet(bound)
        tried.append(rig.measure(scenario, variant, number))
        if tried[-1].foreign_cores <= bound:
            break
        sys.stderr.write(f"disturbed by {tried[-1].foreign_cores:.2f} cores of other processes\n")
    return min(tried, key=lambda measured: measured.foreign_cores)


def await_quiet(bound: float) -> None:
    """Return when the machine uses at most `bound` cores, or after a while."""
    deadline = time.monotonic() + QUIET_WAIT_S
    while time.monotonic() < deadline:
        before = machine_ticks()
        time.sleep(QUIET_SAMPLE_S)
        if (machine_ticks().busy - before.busy) / TICKS_PER_SECOND / QUIET_SAMPLE_S <= bound:
            return


def progress(measured: Measurement) -> str:
    """One line about one window."""
    return (
        f"{measured.scenario.name}, round {measured.round}, {measured.variant.name}: "
        f"{measured.requests_per_s:.0f} req/s, CPU per request: "
        f"envoy {measured.cpu_us_per_request('envoy'):.0f} µs, "
        f"server {measured.cpu_us_per_request('server'):.0f} µs"
        f"{f', errors {measured.errors}' if measured.errors else ''}"
    )
