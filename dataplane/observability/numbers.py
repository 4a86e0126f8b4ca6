"""Metrics as plain numbers, cheap enough for every request.

A request touches a dozen metrics; with ``prometheus_client``'s own children each touch takes a lock. Here a
counter is an attribute and a histogram a list of integers, both owned by the one event-loop thread and read
by it when ``/metrics`` is asked for (``dataplane.observability.exposition``).

Label values that clients choose (model, fairness id) are folded before they become series: no request can
make a process remember more than a named number of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

MAX_LABEL_VALUES: Final = 1000
"""Distinct values one client-chosen label keeps; later ones become ``other``."""

MAX_SERIES: Final = 2000
"""Label combinations one family keeps; later ones are counted under ``other``."""

MAX_LABEL_LENGTH: Final = 256
"""Characters of a label value; longer ones become ``other``."""

OTHER: Final = "other"


class Counter:
    """Only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add ``amount``, which is not negative."""
        self.value += amount


class Gauge:
    """Rises and falls."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        """Replace the value."""
        self.value = value

    def inc(self, amount: float = 1) -> None:
        """Add ``amount``."""
        self.value += amount


class Histogram:
    """Counts per bucket, not cumulative; the last count is of values beyond the last bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        """Count one value; a bucket includes its upper bound."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many values at once."""
        counts = self.counts
        for value in values:
            counts[bisect_left(self.bounds, value)] += 1
        self.sum += sum(values)

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)


N = TypeVar("N", Counter, Gauge, Histogram)


class Family(Generic[N]):
    """All series of one name: label values -> number."""

    __slots__ = ("children", "help", "kind", "labels", "make", "max_series", "name")

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str],
        kind: str,
        make: Callable[[], N],
        max_series: int = MAX_SERIES,
    ) -> None:
        self.name = name
        self.help = help_text
        self.labels = tuple(labels)
        self.kind = kind
        self.make: Callable[[], N] = make
        self.max_series = max_series
        self.children: dict[tuple[str, ...], N] = {}

    def child(self, *values: str) -> N:
        """The number behind these label values, created at first use; ``other`` for all once full.

        Values come from ``label_value`` or ``LabelCap.fold``, or from the configuration.
        """
        found = self.children.get(values)
        if found is not None:
            return found
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has labels {self.labels}, got {len(values)} values")
        if len(self.children) >= self.max_series:
            values = (OTHER,) * len(values)
        return self.children.setdefault(values, self.make())

    def discard(self, *values: str) -> None:
        """Forget one series: what it spoke of is gone."""
        self.children.pop(values, None)


class LabelCap:
    """Keeps the first ``limit`` distinct values of a label and folds the rest into ``other``."""

    __slots__ = ("_folded", "_kept", "limit")

    def __init__(self, limit: int = MAX_LABEL_VALUES) -> None:
        self.limit = limit
        self._kept = 0
        self._folded: dict[str, str] = {}

    def keep(self, values: Iterable[str]) -> None:
        """Never fold these, which the operator chose, whatever clients bring; at most ``limit`` of them."""
        for value in values:
            if self._kept >= self.limit:
                return
            if value not in self._folded:
                self._folded[value] = label_value(value)
                self._kept += 1

    def fold(self, value: str) -> str:
        """The value to count under."""
        folded = self._folded.get(value)
        if folded is None:
            folded = label_value(value) if len(self._folded) < self.limit + self._kept else OTHER
            if folded != OTHER:
                self._folded[value] = folded
        return folded


def label_value(text: str) -> str:
    """``text`` as an exposable label value: valid UTF-8 and at most ``MAX_LABEL_LENGTH`` characters."""
    if len(text) > MAX_LABEL_LENGTH:
        return OTHER
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
