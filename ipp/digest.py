"""A distribution in bounded memory: a merging t-digest, exact where there are few values and at the tails.

Values are held in clusters of a mean and a weight, small ones at both ends and larger ones in the middle.
New values wait in a buffer and are merged when it is full or somebody asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

BUFFERED: Final = 5
"""Values that wait, as a multiple of the compression."""


class Cluster(NamedTuple):
    """Values that are near one another."""

    mean: float
    weight: float


class Digest:
    """Has at most about ``compression`` clusters."""

    __slots__ = ("_buffer", "_clusters", "_compression", "_room", "count")

    def __init__(self, compression: float) -> None:
        self._compression = compression
        self._room = int(compression * BUFFERED)
        self._buffer: list[float] = []
        self._clusters: list[Cluster] = []
        self.count = 0
        """Values that were added."""

    def add(self, value: float) -> None:
        """Take a finite value."""
        self.count += 1
        self._buffer.append(value)
        if len(self._buffer) >= self._room:
            self._merge()

    def clusters(self) -> Sequence[Cluster]:
        """All of them, rising."""
        if self._buffer:
            self._merge()
        return self._clusters

    def split(self, share: float) -> tuple[float, float]:
        """The mean of the lower ``share`` of all values, and of the rest; both of a single value.

        ``ValueError`` without values.
        """
        clusters = self.clusters()
        if not clusters:
            raise ValueError("a distribution without values has no means")
        left = share * self.count
        below = above = weight_below = 0.0
        for mean, weight in clusters:
            taken = min(weight, max(left, 0.0))
            left -= weight
            below += mean * taken
            weight_below += taken
            above += mean * (weight - taken)
        weight_above = self.count - weight_below
        low = below / weight_below if weight_below > 0 else clusters[0].mean
        return low, above / weight_above if weight_above > 1e-9 else clusters[-1].mean

    def _merge(self) -> None:
        waiting = sorted([*self._clusters, *(Cluster(value, 1.0) for value in self._buffer)])
        self._buffer.clear()
        merged: list[Cluster] = []
        done = 0.0
        current, limit = waiting[0], self._limit(0.0)
        for each in waiting[1:]:
            weight = current.weight + each.weight
            if done + weight <= limit:
                mean = current.mean + (each.mean - current.mean) * each.weight / weight
                current = Cluster(mean, weight)
            else:
                merged.append(current)
                done += current.weight
                current, limit = each, self._limit(done)
        merged.append(current)
        self._clusters = merged

    def _limit(self, done: float) -> float:
        """The weight up to which a cluster may reach that begins here."""
        at = math.asin(2 * min(done / self.count, 1.0) - 1) + 2 * math.pi / self._compression
        return self.count * (math.sin(min(at, math.pi / 2)) + 1) / 2
