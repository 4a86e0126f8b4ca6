"""The endpoints to name behind the chosen one, for a proxy that walks the list when an endpoint fails."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from epp.interfaces.endpoint import Endpoint
from epp.interfaces.scheduling import SchedulingResult


def runners_up(
    result: SchedulingResult, most: int, in_service: Callable[[Endpoint], bool], rng: random.Random
) -> list[Endpoint]:
    """The best of the primary profile's other candidates, best first, so that ``most`` are named in all.

    The picker's own choices keep their places before these. Among equal totals the order begins at a place
    drawn by lot, so that a failure does not send everybody to the same endpoint.
    """
    primary = result.results[result.primary]
    missing = most - len(primary.endpoints)
    if missing <= 0 or len(primary.candidates) <= len(primary.endpoints):
        return []
    chosen = {endpoint.slot for endpoint in primary.endpoints}
    found: list[Endpoint] = []
    size = len(primary.candidates)
    first = int(rng.random() * size)
    for position in np.argsort(-np.roll(primary.totals, -first), kind="stable").tolist():
        endpoint = primary.candidates.endpoint((position + first) % size)
        if endpoint.slot not in chosen and in_service(endpoint):
            found.append(endpoint)
            if len(found) == missing:
                break
    return found
