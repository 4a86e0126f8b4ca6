"""The explain benchmark: what tracing a share of the decisions costs all of them, without any network.

The same picker as in the schedule benchmark answers requests with tracing off and with a share of them
traced, in batches that take turns in random order, so that a busy neighbour slows both alike. A batch is as
long as the distance between two traces and contains exactly one, otherwise dropping its slowest
batches would drop the traces. Times are CPU times of the whole request phase of the handler.
"""

import random
from collections.abc import Sequence
from statistics import mean, median
from time import thread_time_ns

import msgspec

from benchmarks.machine import Machine, describe_machine
from benchmarks.schedule import SCRAPE_EVERY, Decisions, collecting_like_the_picker
from benchmarks.tables import number, render_table
from dataplane.clock import SYSTEM_CLOCK
from dataplane.extproc.events import BodyRest
from dataplane.extproc.exchange import Decision, Ending
from epp.decisions import DecisionLog
from epp.explain.policy import ExplainPolicy
from epp.handler import PickerHandler
from epp.metrics import EppMetrics

LIMIT_RATIO = 1.03
"""Promised for the default share."""
WARMUP_BATCHES = 6
SLOWEST_DROPPED = 0.25
"""Share of the batches of each kind that does not count: those that something else held up."""


class ExplainOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench explain`."""

    endpoints: tuple[int, ...] = (10, 100, 1000, 5000)
    prompt_tokens: tuple[int, ...] = (200, 8000)
    share: float = 0.01
    rounds: int = 200
    seed: int = 1


class ExplainCell(msgspec.Struct, frozen=True):
    """One combination; CPU microseconds of a decision, parsing and recording included."""

    endpoints: int
    prompt_tokens: int
    off_us: float
    sampled_us: float
    traced_us: float
    """With every decision traced."""

    @property
    def ratio(self) -> float:
        """What a decision costs with sampling, against one without."""
        return self.sampled_us / self.off_us


class ExplainResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    options: ExplainOptions
    cells: list[ExplainCell]


class Batches:
    """One picker's request path, three times: never traced, sampled, always traced."""

    def __init__(self, endpoints: int, prompt_tokens: int, share: float, seed: int) -> None:
        self.decisions = Decisions(endpoints, prompt_tokens, seed)
        self.size = round(1 / share)
        every_nth = 1.0 - (1.0 - share) ** (self.size - 0.5) if share < 1.0 else 0.0
        self.off = self.handler(None)
        self.sampled = self.handler(ExplainPolicy(share, "off", lambda: every_nth))
        self.traced = self.handler(ExplainPolicy(1.0, "off"))
        self.since_scrape = SCRAPE_EVERY

    def handler(self, policy: ExplainPolicy | None) -> PickerHandler:
        """A handler with a log of its own."""
        metrics = EppMetrics(self.decisions.table, "bench")
        director = self.decisions.director
        return PickerHandler(director, metrics, DecisionLog(200), SYSTEM_CLOCK, explain=policy)

    def run(self, handler: PickerHandler, size: int) -> float:
        """CPU microseconds per decision of one batch."""
        if self.since_scrape >= SCRAPE_EVERY:
            self.decisions.scrape()
            self.since_scrape = 0
        self.since_scrape += size
        asked = [(handler.open(), next(self.decisions.requests)) for _ in range(size)]
        start = thread_time_ns()
        for exchange, request in asked:
            exchange.on_request(request, _no_resume)
        took = thread_time_ns() - start
        for exchange, _ in asked:
            exchange.on_end(Ending.NATURAL)
        return took / size / 1000


def _no_resume(outcome: Decision | BodyRest | Exception) -> None:
    raise AssertionError("the decision did not wait")


def run(options: ExplainOptions) -> ExplainResult:
    """Measure every combination."""
    cells = [
        measure(endpoints, prompt_tokens, options)
        for endpoints in options.endpoints
        for prompt_tokens in options.prompt_tokens
    ]
    return ExplainResult(describe_machine(), options, cells)


def measure(endpoints: int, prompt_tokens: int, options: ExplainOptions) -> ExplainCell:
    """Measure one combination."""
    batches = Batches(endpoints, prompt_tokens, options.share, options.seed)
    turns = [batches.off, batches.sampled]
    order = random.Random(options.seed)  # noqa: S311 - reproducible, not a secret
    times: dict[PickerHandler, list[float]] = {handler: [] for handler in turns}
    with collecting_like_the_picker():
        for _ in range(WARMUP_BATCHES):
            for handler in (*turns, batches.traced):
                batches.run(handler, batches.size)
        for _ in range(options.rounds):
            order.shuffle(turns)
            for handler in turns:
                times[handler].append(batches.run(handler, batches.size))
        traced = [batches.run(batches.traced, 20) for _ in range(10)]
    off, sampled = trimmed(times[batches.off]), trimmed(times[batches.sampled])
    return ExplainCell(endpoints, prompt_tokens, off, sampled, median(traced))


def trimmed(times: Sequence[float]) -> float:
    """The mean without the slowest."""
    return mean(sorted(times)[: max(1, round(len(times) * (1 - SLOWEST_DROPPED)))])


def complaints(result: ExplainResult) -> list[str]:
    """What is not as promised; empty when all is well."""
    return [
        f"{cell.endpoints} endpoints, {cell.prompt_tokens} prompt tokens: decisions cost "
        f"{cell.ratio - 1:.1%} more, promised at most {LIMIT_RATIO - 1:.0%}"
        for cell in result.cells
        if not is_met(cell, result.options)
    ]


def is_met(cell: ExplainCell, options: ExplainOptions) -> bool:
    """Whether the promise, which is made for the default share and less, is kept."""
    return options.share > ExplainOptions().share or cell.ratio <= LIMIT_RATIO


def render(result: ExplainResult, *, judged: bool = True) -> str:
    """The run as text for a terminal; words about promises only if it is to be judged."""
    share = f"{result.options.share:.2%} traced µs"
    header = ["endpoints", "prompt tokens", "not traced µs", share, "ratio", "all traced µs", ""]
    has_limit = judged and result.options.share <= ExplainOptions().share
    rows = [
        [
            number(cell.endpoints),
            number(cell.prompt_tokens),
            *(number(time, 1) for time in (cell.off_us, cell.sampled_us)),
            number(cell.ratio, 3),
            number(cell.traced_us, 1),
            ("ok" if is_met(cell, result.options) else "MISSED") if has_limit else "",
        ]
        for cell in result.cells
    ]
    return render_table(header, rows)
