"""Time as a dependency, so that tests run hours in milliseconds."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds; only differences mean something."""

    def __call__(self) -> float: ...


SYSTEM_CLOCK: Clock = time.monotonic
