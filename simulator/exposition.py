"""Prometheus text written cheaply: a series is rendered again only when it changed.

A picker scrapes every replica many times a second, mostly to find the same numbers; so every metric keeps its
rendered text until its next observation, and the names, labels and bucket bounds are formatted once.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate


def label_text(labels: Mapping[str, str]) -> str:
    """Return `{a="x",b="y"}` with escaped values, names in alphabetical order."""
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in sorted(labels.items())
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def heading(name: str, kind: str, text: str) -> str:
    """Return the HELP and TYPE lines of a metric."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


class Counter:
    """A number that only grows, possibly one of several series of a metric."""

    __slots__ = ("_prefix", "_shown", "_text", "value")

    def __init__(self, name: str, labels: Mapping[str, str], head: str = "") -> None:
        """Make a series; `head` comes before it, on the first series of a metric."""
        self.value = 0
        self._shown = -1
        self._text = b""
        self._prefix = f"{head}{name}{label_text(labels)} ".encode()

    def render(self) -> bytes:
        """Return the series as text."""
        if self._shown != self.value:
            self._shown = self.value
            self._text = b"%b%d\n" % (self._prefix, self.value)
        return self._text


class Histogram:
    """Observations in buckets with upper bounds `bounds`, ascending."""

    __slots__ = ("_bounds", "_count", "_counts", "_sum", "_template", "_text")

    def __init__(self, name: str, help_text: str, bounds: Sequence[float], labels: Mapping[str, str]) -> None:
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._count = 0
        lines = [heading(name, "histogram", help_text)]
        for bound in [*(repr(float(bound)) for bound in bounds), "+Inf"]:
            with_bound = label_text({**labels, "le": bound}).replace("%", "%%")
            lines.append(f"{name}_bucket{with_bound} %d\n")
        plain = label_text(labels).replace("%", "%%")
        lines.append(f"{name}_sum{plain} %r\n{name}_count{plain} %d\n")
        self._template = "".join(lines).encode()
        self._text = b""

    def observe(self, value: float, count: int = 1) -> None:
        """Add `value`, `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count
        self._count += count
        self._text = b""

    def render(self) -> bytes:
        """Return all buckets, the sum and the count as text."""
        if not self._text:
            self._text = self._template % (*accumulate(self._counts), self._sum, self._count)
        return self._text
