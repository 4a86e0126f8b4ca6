"""Durations in the notation of the field's simulators, which is Go's: `1.5s`, `250us`, `1m30s`."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
MAX_SECONDS = 24 * 3600.0


class Duration:
    """A non-negative length of time in seconds, at most one day."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """Read `text`; raise ValueError naming the notation when it is anything else."""
        if text in (0, "0"):
            return cls(0.0)
        written = text if isinstance(text, str) else ""
        position, total = 0, 0.0
        for part in _PART.finditer(written):
            if part.start() != position:
                break
            total += float(part[1]) * _UNITS[part[2]]
            position = part.end()
        if position == 0 or position != len(written):
            raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 250ms or 1.5s")
        if total > MAX_SECONDS:
            raise ValueError(f"{text!r} is longer than a day")
        return cls(total)

    def __str__(self) -> str:
        for unit in ("s", "ms", "us"):
            scaled = self.seconds / _UNITS[unit]
            if scaled >= 1:
                return f"{scaled:.10g}{unit}"
        return f"{self.seconds / 1e-9:.10g}ns" if self.seconds else "0s"

    def __repr__(self) -> str:
        return f"Duration({self.seconds!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and other.seconds == self.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)
