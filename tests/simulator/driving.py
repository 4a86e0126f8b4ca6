"""Helpers that run an engine in virtual time and a fleet in the test's own process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from prometheus_client.parser import text_string_to_metric_families

from simulator.app import Fleet
from simulator.duration import Duration
from simulator.engine import Engine, Limits
from simulator.latency import Latency, StepLatency
from simulator.metrics import Metrics
from simulator.options import SimOptions
from simulator.sequence import Sequence
from simulator.text import TableAnswer
from simulator.tokenizer import from_ids

NO_TIME = StepLatency(0.0, 0.0, 0.0, 0.0)
AT_ONCE, FOREVER = Duration(1e-6), Duration(3600.0)
ONE_SECOND_STEPS = StepLatency(1.0, 0.0, 0.0, 0.0)

_TABLE = bytes(2 * 4 * (1 << 15))


class Trace:
    """A listener that keeps when each token of a sequence came, by the engine's own times."""

    def __init__(self) -> None:
        self.tokens: list[float] = []
        self.done = False

    def token(self, sequence: Sequence) -> None:
        self.tokens.append(sequence.last_token_at)

    def finished(self, sequence: Sequence) -> None:
        self.tokens.append(sequence.last_token_at)
        self.done = True


def limits(**changes: int | bool) -> Limits:
    """Limits of a small replica."""
    values = {
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 256,
        "block_size": 16,
        "num_blocks": 256,
        "max_waiting": 100,
        "max_loras": 1,
    }
    return Limits(**(values | changes))  # type: ignore[arg-type]


def new_engine(
    latency: Latency = ONE_SECOND_STEPS, metrics: Metrics | None = None, **changes: int | bool
) -> Engine:
    """An engine with real metrics."""
    held = limits(**changes)
    return Engine(held, latency, metrics or Metrics("m", held, with_adapters=False))


def samples(text: bytes) -> dict[str, float]:
    """Every sample of an exposition, `name{labels}` without the engine and model labels -> value."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in {"engine", "model_name"}}
            shown = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            found[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return found


def sequence(ids: range | list[int], output: int, *, adapter: str = "", offset: int = 0) -> Sequence:
    """A sequence over token ids that generates `output` tokens; its listener is a `Trace`."""
    answer = TableAnswer(_TABLE, offset, output, "length")
    return Sequence(from_ids(list(ids)), answer, Trace(), adapter=adapter)


def trace(of: Sequence) -> Trace:
    """The listener of a sequence made by `sequence`."""
    assert isinstance(of.listener, Trace)
    return of.listener


def drive(engine: Engine, now: float = 0.0, until: Callable[[], bool] = lambda: False) -> float:
    """Advance from due time to due time until there is no work or `until` holds; return the last time."""
    for _ in range(100_000):
        due = engine.advance(now)
        if due is None or until():
            return now
        now = max(now, due)
    raise AssertionError("the engine never came to rest")


def check_blocks(engine: Engine) -> None:
    """Every block is free or held by exactly the running sequences."""
    held = {block for running in engine.running for block in running.blocks}
    assert engine.cache.used == len(held)
    assert engine.cache.used + engine.cache.free == engine.cache.capacity


async def eventually(holds: Callable[[], bool]) -> None:
    """Let the event loop run until `holds`; the test's time limit ends it if that never happens."""
    while not holds():  # noqa: ASYNC110  # the state belongs to code that has no event to wait for
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running_fleet(**options: object) -> AsyncIterator[Fleet]:
    """A fleet on free ports, without latency unless asked for."""
    values: dict[str, object] = {"model": "base", "profile": "instant", "port": 0}
    fleet = Fleet(SimOptions(**(values | options)))  # type: ignore[arg-type]
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.stop()
