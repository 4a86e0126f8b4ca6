"""What the database says should run."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.configs import rollouts
from controlplane.configs.guarding import Guarded
from controlplane.configs.rollout import Canary, Guard
from controlplane.configs.rollouts import Wish
from controlplane.core.documents import apply
from controlplane.fleet.local.wanted import Wanted, read_wanted
from tests.support.controlplane import ENDPOINTS, EXAMPLES, OBJECTIVE, OPERATOR, POOL

pytestmark = pytest.mark.django_db


def named(document: dict[str, Any], name: str, **spec: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    found["metadata"]["name"] = name
    found["spec"].update(spec)
    return found


def test_a_pool_comes_with_its_endpoints() -> None:
    second = named(ENDPOINTS, "rack-2", endpoints=[{"name": "c", "address": "c.example"}])
    second["spec"]["resolve"] = {"interval": "2s"}
    apply(OPERATOR, [*EXAMPLES.values(), second])
    (pool,) = read_wanted().pools
    assert (pool.name, pool.driver.type, pool.driver.simulated) == ("pool", "local", None)
    assert pool.endpoints == [*ENDPOINTS["spec"]["endpoints"], {"name": "c", "address": "c.example"}]
    assert pool.resolve == {"interval": "2s"}


def test_pools_of_no_driver_are_nobodys() -> None:
    plain = named(POOL, "plain")
    del plain["spec"]["driver"]
    apply(OPERATOR, [POOL, plain])
    assert [pool.name for pool in read_wanted().pools] == ["pool"]


def test_many_pools_cost_as_few_queries_as_one() -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            read_wanted()
        return len(captured)

    apply(OPERATOR, list(EXAMPLES.values()))
    read_wanted()
    before = queries()
    apply(OPERATOR, [named(POOL, f"p{number}") for number in range(10)])
    assert queries() == before <= 5


CONFIG: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "metadata": {"name": "chat", "annotations": {"pointsman.dev/pools": "pool"}},
    "plugins": [{"type": "queue-scorer"}],
}


def test_a_pool_says_what_is_guarded_and_nothing_else_of_its_configuration() -> None:
    apply(OPERATOR, [POOL, CONFIG])
    assert read_wanted().pools[0].guarded is None
    changed = copy.deepcopy(CONFIG)
    changed["metadata"]["annotations"]["pointsman.dev/rollout"] = "manual"
    changed["plugins"] = [{"type": "kv-cache-utilization-scorer"}]
    apply(OPERATOR, [changed])
    rollout = rollouts.publish(OPERATOR, "chat", Wish(canary=Canary(count=1), guard=Guard(0.1, 5)))
    guarded = read_wanted().pools[0].guarded
    assert guarded == Guarded("chat", 2, rollout.pk)
    assert (guarded.is_running("chat/2@5f0c"), guarded.is_running("chat/1@5f0c")) == (True, False)
    rollouts.halt(OPERATOR, "chat")
    assert read_wanted().pools[0].guarded is None


def test_what_an_earlier_version_has_kept_is_still_read() -> None:
    config = {"document": "chat", "revision": 1, "rollout": 1, "content": "{}", "is_guarded": False}
    pool = {"name": "a", "driver": {"type": "local"}, "endpoints": [], "objects": [OBJECTIVE]}
    kept = msgspec.json.encode({"pools": [{**pool, "config": config}], "beyond": 0})
    (found,) = msgspec.json.decode(kept, type=Wanted).pools
    assert (found.name, found.guarded) == ("a", None)
