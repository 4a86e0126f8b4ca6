"""What a client of the websocket is told: first all of the last minutes, then what is new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from controlplane.telemetry import columns
from controlplane.telemetry.rings import Rings


class Telling(Protocol):
    """Makes the messages of one client."""

    def snapshot(self) -> dict[str, Any]:
        """The first one."""

    def delta(self) -> dict[str, Any]:
        """The one after a second."""


class Whole:
    """Points, workers and endpoints of each pool; then those with news."""

    def __init__(self, rings: Rings, pool: str, seconds: int) -> None:
        self._rings, self._pool, self._seconds = rings, pool, seconds
        self._number = 0

    def snapshot(self) -> dict[str, Any]:
        """What is known."""
        pools = self._news()
        for name, latest in pools.items():
            latest["points"] = self._rings.points(name, self._seconds) if self._seconds else []
        return {"pools": pools}

    def delta(self) -> dict[str, Any]:
        """What is new since the last message."""
        return {"pools": self._news()}

    def _news(self) -> dict[str, dict[str, Any]]:
        self._number, names = self._rings.changed(self._number, self._pool)
        return {name: latest for name in names if (latest := self._rings.latest(name)) is not None}


class Charts:
    """Columns of values, then the present second's."""

    def __init__(self, rings: Rings, pool: str, seconds: int) -> None:
        self._rings, self._pool, self._seconds = rings, pool, seconds

    def snapshot(self) -> dict[str, Any]:
        """The last seconds."""
        return columns.history(self._rings, self._pool, self._seconds)

    def delta(self) -> dict[str, Any]:
        """This second."""
        return columns.present(self._rings, self._pool)


TELLINGS: Final[Mapping[str, Callable[[Rings, str, int], Telling]]] = {"": Whole, "charts": Charts}
"""By the name a client asks for."""
