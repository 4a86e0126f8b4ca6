"""What a pool's objects do to requests on their way through the picker."""

from __future__ import annotations

import pytest

from epp.objects.model import InferenceObjective
from epp.objects.snapshot import PoolObjects
from tests.support.request_path import Rig, request_of

PLUGINS = "- type: queue-scorer\n"
OBJECTIVE = "x-llm-d-inference-objective"
OLD_OBJECTIVE = "x-gateway-inference-objective"


@pytest.mark.parametrize(
    ("headers", "priority"),
    [
        ((), 0),
        (((OBJECTIVE, "gold"),), 10),
        (((OLD_OBJECTIVE, "batch"),), -5),
        (((OLD_OBJECTIVE, "batch"), (OBJECTIVE, "gold")), 10),
        (((OBJECTIVE, "unheard-of"),), 0),
    ],
    ids=["absent", "named", "by the old header", "by both", "unknown"],
)
def test_objective_header_gives_the_request_its_priority(
    headers: tuple[tuple[str, str], ...], priority: int
) -> None:
    rig = Rig(PLUGINS)
    rig.objects.current = PoolObjects([InferenceObjective("gold", 10), InferenceObjective("batch", -5)])
    exchange, _ = rig.ask(*headers)
    assert request_of(exchange).priority == priority
    assert [record["priority"] for record in rig.decisions.recent()] == [priority]
    assert f'priority="{priority}"' in "".join(rig.metrics.numbers.expose())


def test_new_objects_count_from_the_next_request_on() -> None:
    rig = Rig(PLUGINS)
    first, _ = rig.ask((OBJECTIVE, "gold"))
    rig.objects.current = PoolObjects([InferenceObjective("gold", 3)])
    second, _ = rig.ask((OBJECTIVE, "gold"))
    assert [request_of(exchange).priority for exchange in (first, second)] == [0, 3]
