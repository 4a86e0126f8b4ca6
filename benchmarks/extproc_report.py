"""What an ext_proc run says: medians per variant, ratios between variants, and whether they are good enough.

Ratios are formed within a round and their median is taken. Each has the limit the product promises, where it
promises one.
"""

from collections.abc import Callable, Sequence

import msgspec

from benchmarks.envoy_config import Mode
from benchmarks.extproc_plan import ExtProcResult, Kind, Measurement, Scenario, Server, Variant
from benchmarks.stats import median, ratio
from benchmarks.tables import number, render_table

LIMIT_OF_ENVOY_ALONE = {Mode.FULL_DUPLEX: 0.85, Mode.REQUEST_ONLY: 0.6}
"""Promised at equal load. In the closed loop Envoy alone carries several times the requests, which makes each
of them cheaper for it: fewer wake-ups, larger batches."""
LIMIT_OF_GRPC_AIO = {Kind.MAIN: 0.22, Kind.PACED: 0.22, Kind.LARGE: 0.35, Kind.STREAM: 0.4}

Figure = Callable[[Measurement], float]


class Row(msgspec.Struct, frozen=True):
    """Medians over the rounds of one variant in one scenario."""

    scenario: str
    variant: str
    requests_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    envoy_us: float
    server_us: float
    upstream_us: float
    envoy_us_per_chunk: float
    server_us_per_chunk: float
    messages_per_request: float
    """ext_proc messages Envoy sent per request."""
    spurious: int
    failed: int
    """ext_proc streams that failed, over all rounds."""
    errors: int
    """Wrong or missing answers, over all rounds."""


class Ratio(msgspec.Struct, frozen=True):
    """One comparison: smaller is better."""

    name: str
    value: float | None
    """None when a side was not measured."""
    limit: float | None
    """None where nothing is promised."""

    @property
    def is_met(self) -> bool:
        """Whether the promise, if there is one, is kept."""
        return self.limit is None or (self.value is not None and self.value <= self.limit)


def rows(result: ExtProcResult) -> list[Row]:
    """One row per scenario and variant, in the order of measuring."""
    groups: dict[tuple[Scenario, Variant], list[Measurement]] = {}
    for measured in result.measurements:
        groups.setdefault((measured.scenario, measured.variant), []).append(measured)
    return [row(scenario, variant, group) for (scenario, variant), group in groups.items()]


def row(scenario: Scenario, variant: Variant, group: Sequence[Measurement]) -> Row:
    """Sum up the rounds of one variant."""

    def of(figure: Figure) -> float:
        return median(figure(measured) for measured in group)

    def total(counter: str) -> int:
        return sum(measured.ext_proc.get(counter, 0) for measured in group)

    return Row(
        scenario=scenario.name,
        variant=variant.name,
        requests_per_s=of(lambda m: m.requests_per_s),
        p50_ms=of(lambda m: m.latency_us.p50) / 1000,
        p90_ms=of(lambda m: m.latency_us.p90) / 1000,
        p99_ms=of(lambda m: m.latency_us.p99) / 1000,
        envoy_us=of(lambda m: m.cpu_us_per_request("envoy")),
        server_us=of(lambda m: m.cpu_us_per_request("server")),
        upstream_us=of(lambda m: m.cpu_us_per_request("upstream")),
        envoy_us_per_chunk=of(lambda m: m.cpu_us_per_chunk("envoy")),
        server_us_per_chunk=of(lambda m: m.cpu_us_per_chunk("server")),
        messages_per_request=of(lambda m: m.ext_proc.get("stream_msgs_sent", 0) / m.requests),
        spurious=total("spurious_msgs_received"),
        failed=total("streams_failed"),
        errors=sum(sum(measured.errors.values()) for measured in group),
    )


def ratios(result: ExtProcResult) -> list[Ratio]:
    """The comparisons that matter, for everything that was measured."""
    options = result.options
    found = []
    for scenario in options.scenarios():
        per_chunk = scenario.kind is Kind.STREAM
        figure: Figure = server_us_per_chunk if per_chunk else server_us
        unit = "CPU per chunk" if per_chunk else "CPU per request"
        modes = [variant.mode for variant in options.variants(scenario) if variant.server is Server.EPP]
        for mode in (mode for mode in modes if mode is not None):
            epp, grpc_aio = Variant(Server.EPP, mode), Variant(Server.GRPC_AIO, mode)
            where = f"{scenario.name}, {mode}"
            if scenario.kind is not Kind.STREAM:
                found.append(
                    Ratio(
                        f"EPP / Envoy alone, {unit}, {where}",
                        paired(result, scenario, (epp, figure), (Variant(Server.NONE, None), envoy_us)),
                        LIMIT_OF_ENVOY_ALONE[mode] if scenario.kind is Kind.PACED else None,
                    )
                )
            found.append(
                Ratio(
                    f"EPP / grpc.aio, {unit}, {where}",
                    paired(result, scenario, (epp, figure), (grpc_aio, figure)),
                    LIMIT_OF_GRPC_AIO[scenario.kind],
                )
            )
    return found


def server_us(measured: Measurement) -> float:
    """CPU of the ext_proc server per request."""
    return measured.cpu_us_per_request("server")


def server_us_per_chunk(measured: Measurement) -> float:
    """CPU of the ext_proc server per SSE chunk."""
    return measured.cpu_us_per_chunk("server")


def envoy_us(measured: Measurement) -> float:
    """CPU of Envoy per request."""
    return measured.cpu_us_per_request("envoy")


def paired(
    result: ExtProcResult, scenario: Scenario, part: tuple[Variant, Figure], whole: tuple[Variant, Figure]
) -> float | None:
    """Median over the rounds of one variant's figure divided by another's."""

    def by_round(side: tuple[Variant, Figure]) -> dict[int, float]:
        variant, figure = side
        mine = [m for m in result.measurements if m.scenario == scenario and m.variant == variant]
        return {m.round: figure(m) for m in mine}

    above, below = by_round(part), by_round(whole)
    values = [ratio(above[number], below[number]) for number in above.keys() & below.keys()]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def complaints(result: ExtProcResult, *, measured_only: bool = False) -> list[str]:
    """What is not as promised; empty when all is well. Figures not measured count unless `measured_only`."""
    found = [
        f"{one.name}: {number(one.value, 2)}, promised at most {one.limit}"
        for one in ratios(result)
        if not one.is_met and not (measured_only and one.value is None)
    ]
    for one in rows(result):
        where = f"{one.scenario}, {one.variant}"
        if one.spurious:
            found.append(f"{where}: {one.spurious} spurious ext_proc messages")
        if one.failed:
            found.append(f"{where}: {one.failed} ext_proc streams failed")
        if one.errors:
            found.append(f"{where}: {one.errors} wrong or missing answers")
    return found


def others_cores(result: ExtProcResult) -> float:
    """CPU other processes used, in the median window."""
    return median(measured.foreign_cores for measured in result.measurements)


def render(result: ExtProcResult, *, judged: bool = True) -> str:
    """The run as text for a terminal; words about promises only if it is to be judged."""
    machine = result.machine
    heading = (
        f"Envoy {result.envoy}, Python {machine.python}, {machine.cpus} CPUs ({machine.cpu}); "
        f"{result.options.repeat} rounds of {result.options.seconds:g} s, medians\n"
    )
    parts = [heading]
    for scenario in result.options.scenarios():
        mine = [one for one in rows(result) if one.scenario == scenario.name]
        parts.append(f"{heading_of(scenario)}\n{scenario_table(scenario, mine)}")
    compared = [
        [one.name, number(one.value, 2), number(one.limit, 2), verdict(one) if judged else ""]
        for one in ratios(result)
    ]
    if compared:
        parts.append(render_table(["ratio", "measured", "limit", ""], compared))
    if result.epp_idle_cores is not None and result.epp_resident_bytes is not None:
        parts.append(
            f"EPP without traffic: {result.epp_idle_cores:.3f} cores "
            f"(scraping {result.options.endpoints} endpoints every {result.options.scrape_interval}); "
            f"memory at the end {result.epp_resident_bytes / 2**20:.0f} MiB\n"
        )
    stolen = median(measured.stolen_cores for measured in result.measurements)
    parts.append(
        f"CPU used by others meanwhile: {others_cores(result):.2f} cores, "
        f"stolen by the host: {stolen:.2f} cores\n"
    )
    return "\n".join(parts)


def heading_of(scenario: Scenario) -> str:
    """A line above the scenario's table."""
    manner = "same load for all" if scenario.rate else "closed loop"
    return f"{scenario.name}, {scenario.connections} connections, {manner}"


def verdict(one: Ratio) -> str:
    """A word for the table's last column."""
    if one.limit is None or one.value is None:
        return ""
    return "ok" if one.is_met else "MISSED"


def scenario_table(scenario: Scenario, mine: Sequence[Row]) -> str:
    """The rows of one scenario; streams show costs per chunk, others per request."""
    stream = scenario.kind is Kind.STREAM
    unit = "µs/chunk" if stream else "µs/req"
    header = ["variant", "req/s", "p50 ms", "p90 ms", "p99 ms", f"envoy {unit}", f"server {unit}"]
    header += ["upstream µs/req", "msgs/req", "spurious", "failed", "errors"]
    cells = []
    for one in mine:
        costs = (one.envoy_us_per_chunk, one.server_us_per_chunk) if stream else (one.envoy_us, one.server_us)
        digits = 1 if stream else 0
        times = [number(value, 2) for value in (one.p50_ms, one.p90_ms, one.p99_ms)]
        cells.append(
            [
                one.variant,
                number(one.requests_per_s, 1 if stream else 0),
                *times,
                *(number(value or None, digits) for value in costs),
                number(one.upstream_us),
                number(one.messages_per_request, 1),
                *(str(count) for count in (one.spurious, one.failed, one.errors)),
            ]
        )
    return render_table(header, cells)
