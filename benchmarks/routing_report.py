"""What a routing run says: one row per policy, and the picker's lead over the others."""

from collections.abc import Callable

import msgspec

from benchmarks.routing import Policy, PolicyResult, RoutingResult
from benchmarks.stats import ratio
from benchmarks.tables import number, render_table

LEAST_TTFT_LEAD = 2.0
"""Promised: round robin's TTFT p90 divided by the picker's, near saturation."""


class Lead(msgspec.Struct, frozen=True):
    """How many times better the picker is than another policy; above 1 is better."""

    over: Policy
    figure: str
    value: float | None
    """None when a side was not measured."""
    least: float | None = None
    """None where nothing is promised."""

    @property
    def is_met(self) -> bool:
        """Whether the promise, if there is one, is kept."""
        return self.least is None or (self.value is not None and self.value >= self.least)


def leads(result: RoutingResult) -> list[Lead]:
    """The picker against every other policy that was measured; empty without the picker."""
    by_policy = {one.policy: one for one in result.policies}
    ours = by_policy.pop(Policy.POINTSMAN, None)
    if ours is None:
        return []
    found = []
    for policy, other in by_policy.items():
        promised = LEAST_TTFT_LEAD if policy is Policy.ROUND_ROBIN else None
        found += [
            Lead(policy, "TTFT p50", ratio(other.ttft_s.p50, ours.ttft_s.p50)),
            Lead(policy, "TTFT p90", ratio(other.ttft_s.p90, ours.ttft_s.p90), promised),
            Lead(policy, "TTFT p99", ratio(other.ttft_s.p99, ours.ttft_s.p99)),
            Lead(policy, "output tokens/s", ratio(ours.output_tokens_per_s, other.output_tokens_per_s)),
        ]
    return found


def complaints(result: RoutingResult) -> list[str]:
    """What is not as promised; empty when all is well."""
    found = [
        f"{lead.figure} against {lead.over}: {number(lead.value, 2)} times better, promised {lead.least:g}"
        for lead in leads(result)
        if lead.least is not None and not lead.is_met
    ]
    return found + [
        f"{one.policy}: {count} requests failed: {error}"
        for one in result.policies
        for error, count in one.errors.items()
    ]


def render(result: RoutingResult, *, judged: bool = True) -> str:
    """The run as text for a terminal; words about promises only if it is to be judged."""
    workload, options = result.workload, result.options
    heading = (
        f"{options.replicas} simulated replicas ({options.profile}, time x{options.time_scale:g}, "
        f"{result.kv_blocks} KV blocks each), {workload.groups} groups of {workload.system_tokens} + "
        f"{workload.question_tokens} prompt tokens, {workload.output_tokens} output tokens\n"
        f"Poisson arrivals, {workload.rate:.1f} requests/s; {workload.seconds:g} s counted after "
        f"{workload.warmup_s:g} s of warm-up; the same requests for every policy\n"
    )
    columns: dict[str, Callable[[PolicyResult], str]] = {
        "policy": lambda one: one.policy,
        "requests": lambda one: number(one.requests),
        "errors": lambda one: number(sum(one.errors.values())),
        "TTFT p50 s": lambda one: number(one.ttft_s.p50, 3),
        "p90 s": lambda one: number(one.ttft_s.p90, 3),
        "p99 s": lambda one: number(one.ttft_s.p99, 3),
        "latency p50 s": lambda one: number(one.latency_s.p50, 2),
        "hit ratio": lambda one: number(one.hit_ratio, 3),
        "output tok/s": lambda one: number(one.output_tokens_per_s),
        "max/mean": lambda one: number(one.imbalance, 2),
        "busy cores": lambda one: number(one.busy_cores, 2),
        "late ms": lambda one: number(one.most_late_s * 1000),
    }
    table = render_table(list(columns), [[cell(one) for cell in columns.values()] for one in result.policies])
    compared = [
        [
            f"{lead.figure} against {lead.over}",
            number(lead.value, 2),
            number(lead.least, 1),
            verdict(lead) if judged else "",
        ]
        for lead in leads(result)
    ]
    parts = [heading, table]
    if compared:
        parts.append(render_table(["times better", "measured", "promised", ""], compared))
    return "\n".join(parts)


def verdict(lead: Lead) -> str:
    """A word for the table's last column."""
    if lead.least is None:
        return ""
    return "ok" if lead.is_met else "MISSED"
