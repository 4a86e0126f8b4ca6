"""What scorers have in common that go by the time to the first byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.ttft import NOTHING, Summary, TtftTable


class Expectation(NamedTuple):
    """What a scorer made of one model; for those who ask why."""

    state: str
    """``cold`` = never seen enough, ``seed`` = not enough of late, ``trusted``."""
    summary: Summary
    in_flight: int
    seconds: float
    """The time that is expected; 0 = none can be."""
    is_suppressed: bool = False
    """Scored 0, so that models that are known serve the request."""


class Expectations:
    """Key of a request's state under which they are, by model."""


def known(table: TtftTable, candidates: Sequence[ServedModel], now: float) -> list[tuple[Summary, int]]:
    """What is known of each model, and the requests it has under way."""
    windows = table.windows
    found: list[tuple[Summary, int]] = []
    for model in candidates:
        window = windows.get(model.name)
        found.append((NOTHING, 0) if window is None else (window.summary(now), window.in_flight))
    return found


def shortest_first(times: Sequence[float]) -> list[float]:
    """1 for the shortest, 0 for the longest, in proportion between; 1 for all when all are the same."""
    least, most = min(times), max(times)
    if least == most:
        return [1.0] * len(times)
    return [(most - time) / (most - least) for time in times]


def note(request: RequestMessage, candidates: Sequence[ServedModel], expected: Sequence[Expectation]) -> None:
    """Leave what was expected where others find it."""
    request.state[Expectations] = {model.name: each for model, each in zip(candidates, expected, strict=True)}
