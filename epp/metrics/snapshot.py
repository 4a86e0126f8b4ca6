"""The picker's numbers at one moment, summed up over all kinds of requests; two of them make a rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dataplane.observability.numbers import Family, Histogram
from epp.metrics.catalog import ProcessFamilies, RequestFamilies

MODEL_SERVER_ERROR: Final = "ModelServerError"
"""Error code of failed answers of a model server: other than 2xx, or gRPC's OK. Their requests had an
endpoint, so they are among the total.
"""
NOT_THE_SENDERS: Final = frozenset(
    {"Internal", "ServiceUnavailable", "ResourceExhausted", "DeadlineExceeded", MODEL_SERVER_ERROR}
)
"""Error codes that are not the sender's fault."""


class Snapshot(NamedTuple):
    """Totals since the process began; histograms are counts per bucket."""

    requests: int
    """Given an endpoint, or refused for a reason that is not the sender's."""
    errors: int
    ttft: Sequence[int]
    """Of streamed answers."""
    decisions: Sequence[int]
    hits: int
    hit_sum: float


def take(requests: RequestFamilies, process: ProcessFamilies) -> Snapshot:
    """Read all of them; at most some thousands of additions."""
    given = sum(counter.value for counter in requests.total.children.values())
    refused = failed = 0.0
    for labels, counter in requests.errors.children.items():
        code = labels[-1]
        if code == MODEL_SERVER_ERROR:
            failed += counter.value
        elif code in NOT_THE_SENDERS:
            refused += counter.value
    ratios = process.hit_ratio.children.values()
    streamed = (found for labels, found in requests.ttft.children.items() if labels[-1] == "true")
    total = int(given + refused)
    return Snapshot(
        requests=total,
        errors=min(total, int(failed + refused)),
        ttft=_added(requests.ttft, streamed),
        decisions=_added(process.scheduler, process.scheduler.children.values()),
        hits=sum(found.count for found in ratios),
        hit_sum=sum(found.sum for found in ratios),
    )


def _added(family: Family[Histogram], histograms: Iterable[Histogram]) -> list[int]:
    counts = [0] * len(family.make().counts)
    for histogram in histograms:
        counts = [a + b for a, b in zip(counts, histogram.counts, strict=True)]
    return counts
