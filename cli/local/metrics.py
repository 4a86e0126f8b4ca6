"""Reads what a picker says about its pool from its `/metrics`: one snapshot, and the difference of two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dataplane.processes.ports import LOOPBACK

SCRAPE_CAP_BYTES = 8 * 1024 * 1024

DECISION_SECONDS = "llm_d_epp_scheduler_e2e_duration_seconds"
HIT_RATIO = "llm_d_epp_prefix_indexer_hit_ratio"


class Scraped(Protocol):
    """A pool whose picker is asked."""

    @property
    def name(self) -> str:
        """As the picker's metrics have it."""
        ...

    @property
    def metrics_port(self) -> int:
        """Where they are, on loopback."""
        ...


async def scrape(session: aiohttp.ClientSession, pool: Scraped) -> list[Sample]:
    """Return all samples of a picker; none when it does not answer."""
    try:
        async with session.get(f"http://{LOOPBACK}:{pool.metrics_port}/metrics") as answer:
            if answer.status != 200:
                return []
            page = bytearray()
            async for chunk in answer.content.iter_any():
                page += chunk
                if len(page) > SCRAPE_CAP_BYTES:
                    return []
        text = page.decode(errors="replace")
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return []


def sample_value(samples: Sequence[Sample], name: str, /, **labels: str) -> float | None:
    """Return the sum of the samples with this name and these labels; None when there is none."""
    values = [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()]
    return sum(values) if values else None


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """What one picker has seen since its start."""

    name: str
    is_up: bool
    endpoints: int
    requests: int
    running: int
    errors: int
    hit_ratio: float | None
    """Mean share of a prompt that the picked endpoint held already, 0 to 1."""
    decision_p50_s: float | None


def pool_status(pool: Scraped, samples: Sequence[Sample]) -> PoolStatus:
    """Condense a picker's samples."""

    def total(name: str) -> int:
        return int(sample_value(samples, f"llm_d_epp_{name}") or 0)

    hits = sample_value(samples, f"{HIT_RATIO}_count")
    return PoolStatus(
        name=pool.name,
        is_up=bool(samples),
        endpoints=total("ready_endpoints"),
        requests=total("request_total"),
        running=total("request_running"),
        errors=total("request_error_total"),
        hit_ratio=(sample_value(samples, f"{HIT_RATIO}_sum") or 0) / hits if hits else None,
        decision_p50_s=quantile(samples, DECISION_SECONDS, 0.5),
    )


def quantile(samples: Sequence[Sample], name: str, q: float) -> float | None:
    """Return a histogram's quantile, interpolated within its bucket; None when it is empty."""
    buckets: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0) + sample.value
    rows = sorted(buckets.items())
    if not rows or not rows[-1][1]:
        return None
    wanted, below, lower = q * rows[-1][1], 0.0, 0.0
    for bound, count in rows:
        if count >= wanted:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        below, lower = count, bound
    return lower
