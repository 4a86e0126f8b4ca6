"""The scheduling benchmark: how long the picker thinks about one request, without any network around it.

The director of a picker with the built-in configuration decides over a table of N endpoints whose metrics
are fresh and differ. Requests share prefixes as applications' do, so the prefix index finds partial matches
on some endpoints; a window of decided requests stays in flight and is settled outside the measured time.
Everything is in one process and one thread, as in the picker itself, with the picker's own settings of the
garbage collector.
"""

import gc
import itertools
import json
import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import NamedTuple

import msgspec

from benchmarks.bodies import chat_body, prose
from benchmarks.epp_process import default_config
from benchmarks.machine import Machine, describe_machine
from benchmarks.stats import Summary, summarize
from benchmarks.tables import number, render_table
from benchmarks.vllm_metrics import BLOCK_SIZE_TOKENS, NUM_GPU_BLOCKS
from dataplane.clock import SYSTEM_CLOCK
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import REQUEST_ID, Headers
from dataplane.serving import GC_THRESHOLDS
from epp.director import Admitted, Director
from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import ResponseSummary
from epp.metrics import EppMetrics
from epp.resilience.guard import Guard
from simulator.tokenizer import TOKEN_BYTES

GROUPS = 32
"""Shared prefixes among the requests."""
SHARED_PART = 0.75
"""Share of a prompt that its group's prefix takes."""
MOST_BODIES = 512
FEWEST_BODIES = 48
BODIES_MEMORY_BYTES = 64 * 1024 * 1024
"""How many distinct requests are in rotation: as many as fit here, within the two bounds."""
IN_FLIGHT_PER_ENDPOINT = 4
SCRAPE_EVERY = 256
"""Decisions between two refreshes of all endpoints' metrics."""
WARMUP = 300
"""Decisions that do not count: caches fill, code paths warm up."""

LIMIT_P50_US = 1000.0
"""Promised up to `LIMIT_ENDPOINTS` and `LIMIT_PROMPT_TOKENS`."""
LIMIT_ENDPOINTS = 1000
LIMIT_PROMPT_TOKENS = 8000


class ScheduleOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench schedule`."""

    endpoints: tuple[int, ...] = (10, 100, 1000, 5000)
    prompt_tokens: tuple[int, ...] = (200, 8000, 100_000)
    samples: int = 1000
    seed: int = 1


class Cell(msgspec.Struct, frozen=True):
    """One combination; times in microseconds."""

    endpoints: int
    prompt_tokens: int
    body_bytes: int
    parse_us: Summary
    """Reading the body."""
    decide_us: Summary
    """Producers, filters, scorers, picker, booking."""
    total_us: Summary
    cpu_us: float
    """Mean CPU time of a decision, parsing included."""

    @property
    def has_limit(self) -> bool:
        """Whether a time is promised for this combination."""
        return self.endpoints <= LIMIT_ENDPOINTS and self.prompt_tokens <= LIMIT_PROMPT_TOKENS

    @property
    def is_met(self) -> bool:
        """Whether the promise, if there is one, is kept."""
        return not self.has_limit or self.total_us.p50 < LIMIT_P50_US


class ScheduleResult(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    machine: Machine
    options: ScheduleOptions
    cells: list[Cell]


class Times(NamedTuple):
    """Seconds of one decision."""

    parse: float
    decide: float
    cpu: float
    """CPU time of both together."""


class Decisions:
    """A director over a pool, and requests for it to decide."""

    def __init__(self, endpoints: int, prompt_tokens: int, seed: int) -> None:
        self.random = random.Random(f"{seed}/{endpoints}/{prompt_tokens}")  # noqa: S311 - reproducible, not a secret
        self.table = EndpointTable()
        for index in range(endpoints):
            address = f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"
            self.table.add(EndpointSpec(f"replica-{index}", "default", address, 8000))
        graph = load_graph(json.dumps(default_config(None)), Handle(self.table, rng=self.random))
        metrics = EppMetrics(self.table, "bench")
        guard = Guard(self.table, SYSTEM_CLOCK, self.random, metrics.numbers, graph.config.resilience)
        self.director = Director(self.table, graph, metrics, SYSTEM_CLOCK, guard=guard)
        requests = self.build_requests(prompt_tokens)
        self.body_bytes = len(requests[0].body or b"")
        self.requests = itertools.cycle(requests)
        self.in_flight: deque[Admitted] = deque()
        self.window = endpoints * IN_FLIGHT_PER_ENDPOINT
        self.decided = 0

    def build_requests(self, prompt_tokens: int) -> list[HttpRequest]:
        """Requests of one size; the prompt is a shared prefix and a question of its own."""
        length = prompt_tokens * TOKEN_BYTES
        shared = int(length * SHARED_PART)
        systems = [prose(self.random, shared) for _ in range(GROUPS)]
        requests = []
        for index in range(max(FEWEST_BODIES, min(MOST_BODIES, BODIES_MEMORY_BYTES // length))):
            system = systems[self.random.randrange(GROUPS)]
            body = chat_body("bench", system, prose(self.random, length - shared), stream=True)
            headers = Headers.of(
                [
                    (":method", "POST"),
                    (":path", "/v1/chat/completions"),
                    (":authority", "bench.local"),
                    ("content-type", "application/json"),
                    ("user-agent", "pointsman-bench"),
                    (REQUEST_ID, f"00000000-0000-4000-8000-{index:012d}"),
                ]
            )
            requests.append(HttpRequest(headers, body, None))
        return requests

    def decide(self) -> Times:
        """Decide one request, and settle the oldest one when the window is full."""
        if self.decided % SCRAPE_EVERY == 0:
            self.scrape()
        self.decided += 1
        http = next(self.requests)
        cpu = thread_time()
        start = perf_counter()
        request, parser = self.director.parse(http)
        parsed = perf_counter()
        admitted = self.director.admit(request, parser, http)
        end = perf_counter()
        cpu = thread_time() - cpu
        self.in_flight.append(admitted)
        if len(self.in_flight) > self.window:
            oldest = self.in_flight.popleft()
            self.director.first_byte(oldest)
            self.director.finish(oldest, ResponseSummary(status=200, streaming=True, ttft_s=0.1))
        return Times(parsed - start, end - parsed, cpu)

    def scrape(self) -> None:
        """Give every endpoint fresh metrics that fit what is in flight."""
        table, now = self.table, SYSTEM_CLOCK()
        for slot in table.all().slots.tolist():
            table.begin_scrape(slot)
            table.waiting[slot] = self.random.randrange(4)
            table.running[slot] = table.inflight[slot]
            table.kv_usage[slot] = self.random.random()
            table.block_size[slot] = BLOCK_SIZE_TOKENS
            table.num_blocks[slot] = NUM_GPU_BLOCKS
            table.end_scrape(slot, now)


def run(options: ScheduleOptions) -> ScheduleResult:
    """Measure every combination."""
    cells = [
        measure(endpoints, prompt_tokens, options)
        for endpoints in options.endpoints
        for prompt_tokens in options.prompt_tokens
    ]
    return ScheduleResult(describe_machine(), options, cells)


def measure(endpoints: int, prompt_tokens: int, options: ScheduleOptions) -> Cell:
    """Measure one combination."""
    decisions = Decisions(endpoints, prompt_tokens, options.seed)
    with collecting_like_the_picker():
        for _ in range(max(WARMUP, decisions.window)):
            decisions.decide()
        times = [decisions.decide() for _ in range(options.samples)]
    return Cell(
        endpoints=endpoints,
        prompt_tokens=prompt_tokens,
        body_bytes=decisions.body_bytes,
        parse_us=summarize(one.parse * 1e6 for one in times),
        decide_us=summarize(one.decide * 1e6 for one in times),
        total_us=summarize((one.parse + one.decide) * 1e6 for one in times),
        cpu_us=sum(one.cpu for one in times) / len(times) * 1e6,
    )


@contextmanager
def collecting_like_the_picker() -> Iterator[None]:
    """The picker's settings of the garbage collector, for a while."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def complaints(result: ScheduleResult) -> list[str]:
    """What is not as promised; empty when all is well."""
    return [
        f"{cell.endpoints} endpoints, {cell.prompt_tokens} prompt tokens: p50 {cell.total_us.p50:.0f} µs, "
        f"promised below {LIMIT_P50_US:.0f} µs"
        for cell in result.cells
        if not cell.is_met
    ]


def render(result: ScheduleResult, *, judged: bool = True) -> str:
    """The run as text for a terminal; words about promises only if it is to be judged."""
    header = ["endpoints", "prompt tokens", "body B", "parse p50 µs", "decide p50 µs"]
    header += ["total p50 µs", "p95 µs", "p99 µs", "max µs", "CPU µs", ""]
    return render_table(header, [row(cell, judged=judged) for cell in result.cells])


def row(cell: Cell, *, judged: bool) -> Sequence[str]:
    """One line of the table."""
    total = cell.total_us
    times = (cell.parse_us.p50, cell.decide_us.p50, total.p50, total.p95, total.p99, total.max, cell.cpu_us)
    verdict = ("ok" if cell.is_met else "MISSED") if judged and cell.has_limit else ""
    counts = (cell.endpoints, cell.prompt_tokens, cell.body_bytes)
    return [*(number(count) for count in counts), *(number(time, 0) for time in times), verdict]
