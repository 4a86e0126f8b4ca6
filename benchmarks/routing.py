"""The routing benchmark: what a policy makes of the same fleet and the same requests.

For every policy a fresh fleet of simulated model servers, a fresh Envoy and, for the picker's policy, a fresh
picker with its built-in configuration. The simulated servers batch, chunk and cache like real ones in real
time, so time to first token and throughput come out of queues and caches, not out of a formula.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.children import BenchError, Child, Worker
from benchmarks.cpu import TICKS_PER_SECOND, machine_ticks
from benchmarks.envoy_config import Balancing, bootstrap
from benchmarks.envoy_process import Envoy, envoy_version
from benchmarks.epp_process import Epp
from benchmarks.fleet import MODEL, Fleet
from benchmarks.machine import Machine, describe_machine
from benchmarks.routing_load import Outcome
from benchmarks.routing_workload import Workload, cold_service_s
from benchmarks.stats import Summary, ratio, summarize
from simulator.profile import ProfileError, load_profile

BLOCK_SIZE = 16
"""Tokens in a KV-cache block of the simulated servers."""

LEAST_FLEET_ROOM = 1.5
"""How many times all prefixes the fleet must hold, so that running requests and questions fit as well."""


class Policy(StrEnum):
    """Who chooses the endpoint."""

    POINTSMAN = "pointsman"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    LEAST_REQUEST = "least-request"


class RoutingOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench routing`."""

    replicas: int = 8
    rate: float = 0.0
    """Requests per second; 0 derives it from what the fleet can do."""
    load: float = 1.2
    """With the derived rate: the rate as a multiple of what the fleet can do without any cache hit."""
    seconds: float = 30.0
    warmup_s: float = 10.0
    drain_s: float = 60.0
    groups: int = 48
    system_tokens: int = 6000
    question_tokens: int = 1200
    output_tokens: int = 64
    replica_share: float = 0.34
    """Share of all system prompts that the KV cache of one replica has room for."""
    profile: str = "h100-8b"
    time_scale: float = 1.0
    policies: tuple[Policy, ...] = (Policy.POINTSMAN, Policy.ROUND_ROBIN, Policy.RANDOM)
    seed: int = 1

    def workload(self) -> Workload:
        """The requests, with the rate that is given or follows; raises `BenchError` when none follows."""
        shape = Workload(
            groups=self.groups,
            system_tokens=self.system_tokens,
            question_tokens=self.question_tokens,
            output_tokens=self.output_tokens,
            seconds=self.seconds,
            warmup_s=self.warmup_s,
            seed=self.seed,
        )
        if self.rate:
            return msgspec.structs.replace(shape, rate=self.rate)
        try:
            service_s = cold_service_s(shape, load_profile(self.profile)) * self.time_scale
        except ProfileError as error:
            raise BenchError(str(error)) from None
        if service_s <= 0:
            raise BenchError(f"no rate follows from profile {self.profile}, which takes no time; give --rate")
        return msgspec.structs.replace(shape, rate=self.load * self.replicas / service_s)

    def kv_blocks(self) -> int:
        """Blocks of one replica's KV cache; raises `BenchError` when the workload would show nothing."""
        if not self.replica_share < 1 <= self.replica_share * self.replicas / LEAST_FLEET_ROOM:
            raise BenchError(
                f"{self.replicas} replicas with room for {self.replica_share:g} of the prefixes each: one "
                f"replica must not hold all of them and the fleet must hold them {LEAST_FLEET_ROOM} times"
            )
        blocks = int(self.groups * self.system_tokens * self.replica_share / BLOCK_SIZE)
        one = -(-(self.system_tokens + self.question_tokens + self.output_tokens) // BLOCK_SIZE)
        if blocks < one:
            raise BenchError(f"a KV cache of {blocks} blocks cannot hold one request of {one}: more groups")
        return blocks


class PolicyResult(msgspec.Struct, frozen=True):
    """What one policy achieved in the measured time."""

    policy: Policy
    requests: int
    """Arrivals in the measured time."""
    errors: dict[str, int]
    ttft_s: Summary
    """Of the complete answers among them."""
    latency_s: Summary
    """From due to the last token."""
    prompt_tokens: int
    cached_tokens: int
    output_tokens_per_s: float
    """Tokens of answers that ended in the measured time."""
    requests_per_endpoint: list[int]
    """Over the whole run, warm-up included."""
    cpu_s: dict[str, float]
    """CPU time of each process over the whole run."""
    busy_cores: float
    """CPU used by the whole machine during the run."""
    most_late_s: float
    """How late the clients sent a request at worst: more than some milliseconds mean a machine too busy."""

    @property
    def hit_ratio(self) -> float | None:
        """Share of the prompt tokens that were found in a KV cache."""
        return ratio(self.cached_tokens, self.prompt_tokens)

    @property
    def imbalance(self) -> float | None:
        """Requests of the endpoint that got most, relative to the mean."""
        counts = self.requests_per_endpoint
        return ratio(max(counts, default=0) * len(counts), sum(counts))


class RoutingResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    envoy: str
    options: RoutingOptions
    workload: Workload
    kv_blocks: int
    """Of each replica."""
    policies: list[PolicyResult]


def run(options: RoutingOptions) -> RoutingResult:
    """Measure every policy; progress goes to stderr. Raises `BenchError`."""
    machine = describe_machine()
    workload, kv_blocks = options.workload(), options.kv_blocks()
    sys.stderr.write(f"{workload.rate:.1f} requests/s, {kv_blocks} KV blocks per replica\n")
    results = []
    for policy in options.policies:
        with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
            result = measure(policy, options, workload, kv_blocks, Path(folder))
        results.append(result)
        sys.stderr.write(
            f"{policy}: TTFT p50 {result.ttft_s.p50:.3f} s, p90 {result.ttft_s.p90:.3f} s, "
            f"{result.output_tokens_per_s:.0f} tokens/s, errors {result.errors or 0}\n"
        )
    return RoutingResult(machine, envoy_version(), options, workload, kv_blocks, results)


def measure(
    policy: Policy, options: RoutingOptions, workload: Workload, kv_blocks: int, folder: Path
) -> PolicyResult:
    """Run one policy on a fresh set of processes."""
    with ExitStack() as stack:
        fleet = stack.enter_context(
            Fleet(
                folder,
                replicas=options.replicas,
                profile=options.profile,
                time_scale=options.time_scale,
                kv_blocks=kv_blocks,
                seed=options.seed,
            )
        )
        processes: dict[str, Child] = {"fleet": fleet}
        if policy is Policy.POINTSMAN:
            epp = stack.enter_context(Epp(fleet.addresses, folder))
            processes["epp"] = epp
            config = bootstrap(fleet.addresses, Balancing.PICKED, ext_proc=epp.address)
        else:
            config = bootstrap(fleet.addresses, Balancing(policy))
        envoy = stack.enter_context(Envoy("envoy", config, folder))
        processes["envoy"] = envoy
        before = {name: child.cpu_seconds() for name, child in processes.items()}
        machine_before = machine_ticks()
        arguments = [
            f"--target={envoy.address}",
            f"--model={MODEL}",
            f"--workload={msgspec.json.encode(workload).decode()}",
            f"--drain-s={options.drain_s}",
        ]
        load = stack.enter_context(Worker("clients", "benchmarks.routing_load", arguments, folder))
        line = load.read_line(workload.warmup_s + workload.seconds + options.drain_s + 60)
        outcomes = msgspec.json.decode(line, type=list[Outcome])
        busy_s = (machine_ticks().busy - machine_before.busy) / TICKS_PER_SECOND
        cpu = {name: child.cpu_seconds() - before[name] for name, child in processes.items()}
        ended = max((outcome.ended_s for outcome in outcomes), default=0.0)
        busy_cores = busy_s / max(ended, workload.warmup_s + workload.seconds)
        return sum_up(policy, workload, outcomes, envoy.requests_per_endpoint(), cpu, busy_cores)


def sum_up(
    policy: Policy,
    workload: Workload,
    outcomes: Sequence[Outcome],
    requests_per_endpoint: list[int],
    cpu_s: dict[str, float],
    busy_cores: float,
) -> PolicyResult:
    """Reduce the outcomes to figures; only arrivals after the warm-up count."""
    counted = [outcome for outcome in outcomes if outcome.at_s >= workload.warmup_s]
    complete = [outcome for outcome in counted if not outcome.error]
    window_end = workload.warmup_s + workload.seconds
    delivered = sum(
        outcome.completion_tokens
        for outcome in outcomes
        if not outcome.error and workload.warmup_s <= outcome.ended_s < window_end
    )
    return PolicyResult(
        policy=policy,
        requests=len(counted),
        errors=dict(Counter(outcome.error for outcome in counted if outcome.error)),
        ttft_s=summarize(outcome.ttft_s for outcome in complete),
        latency_s=summarize(outcome.ended_s - outcome.at_s for outcome in complete),
        prompt_tokens=sum(outcome.prompt_tokens for outcome in complete),
        cached_tokens=sum(outcome.cached_tokens for outcome in complete),
        output_tokens_per_s=delivered / workload.seconds,
        requests_per_endpoint=requests_per_endpoint,
        cpu_s=cpu_s,
        busy_cores=busy_cores,
        most_late_s=max((outcome.late_s for outcome in counted), default=0.0),
    )
