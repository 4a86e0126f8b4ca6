"""How a plugin shows numbers of its own on ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from dataplane.observability.numbers import Histogram
from dataplane.plugin.base import TypedName

__all__ = ["Histogram", "Numbered"]


@runtime_checkable
class Numbered(Protocol):
    """Keeps numbers that are exposed under its name and type; they are read when ``/metrics`` is asked for.

    Which metrics there are is said in ``epp.metrics.plugins``. A plugin keeps the number of its series
    bounded, and takes its counters over from its predecessor, so that a reload resets nothing.
    """

    name: TypedName

    def metric_series(self, metric: str) -> Iterable[tuple[Sequence[str], float | Histogram]]:
        """Label values and value of each series of the metric of this name, without prefix; possibly none."""
        ...
