"""Percentiles, histograms and medians of what was measured.

Percentiles are by nearest rank: the answer is always a value that occurred. Rounds are summed up by their
median, so that one disturbed round on a shared machine does not move the result.
"""

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Summary(msgspec.Struct, frozen=True):
    """A distribution in the unit of its samples; all zero when there were none."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest sample with at least `percent` (0 to 100) of all samples at or below it.

    `ordered` is ascending and not empty.
    """
    if not ordered:
        raise ValueError("a percentile of nothing is undefined")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be in 0..100, got {percent}")
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def summarize(samples: Iterable[float]) -> Summary:
    """Sum up samples that come in any order."""
    ordered = sorted(samples)
    if not ordered:
        return Summary(count=0, mean=0.0, p50=0.0, p90=0.0, p95=0.0, p99=0.0, max=0.0)
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in (50, 90, 95, 99))
    mean = sum(ordered) / len(ordered)
    return Summary(len(ordered), mean, p50, p90, p95, p99, ordered[-1])


def histogram(samples: Iterable[float], *, buckets_per_doubling: int = 4) -> list[tuple[float, int]]:
    """Count positive samples in buckets that widen geometrically.

    Each entry is (inclusive upper bound, samples in the bucket); empty buckets are left out. Samples at or
    below zero, which a clock too coarse for the thing measured can yield, count in the bucket bounded by 0.
    """
    counts: dict[int | None, int] = {}
    for sample in samples:
        index = math.ceil(math.log2(sample) * buckets_per_doubling) if sample > 0 else None
        counts[index] = counts.get(index, 0) + 1
    bounds = {index: 0.0 if index is None else 2 ** (index / buckets_per_doubling) for index in counts}
    return sorted((bounds[index], count) for index, count in counts.items())


def median(values: Iterable[float]) -> float:
    """Middle value; 0 when there are none."""
    known = list(values)
    return statistics.median(known) if known else 0.0


def ratio(part: float, whole: float) -> float | None:
    """`part / whole`, or nothing when the denominator was not measured."""
    return part / whole if whole > 0 else None
