"""What a plugin shows of the state it keeps, on ``/debug/plugins/state``.

A dump is made on the event loop, so it is cheap and bounded: totals, and of everything there can be many of
the first ``MAX_DUMPED`` and how many were left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

MAX_DUMPED: Final = 100
"""Entries of one list that a dump shows."""


@runtime_checkable
class StateDumper(Protocol):
    """A plugin that shows what it holds."""

    def dump_state(self) -> Any:
        """JSON-able; nothing of a prompt, and no value that lets its reader act for a client."""
        ...


def listing(name: str, items: Iterable[Any], total: int) -> dict[str, Any]:
    """The first of ``total`` items under ``name`` (camel case), with how many there are and were left out."""
    shown = list(islice(items, MAX_DUMPED))
    kind = name[0].upper() + name[1:]
    return {
        f"total{kind}": total,
        f"max{kind}": MAX_DUMPED,
        "truncated": total > len(shown),
        "leftOut": total - len(shown),
        name: shown,
    }


def highest(values: npt.NDArray[np.float64], among: npt.NDArray[np.intp]) -> list[int]:
    """The slots among these with the highest positive values, highest first, as many as a dump shows."""
    busy = among[values[among] > 0]
    if busy.size > MAX_DUMPED:
        busy = busy[np.argpartition(-values[busy], MAX_DUMPED - 1)[:MAX_DUMPED]]
    order: list[int] = busy[np.argsort(-values[busy], kind="stable")].tolist()
    return order
