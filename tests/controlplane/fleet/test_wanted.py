"""What the database says should run."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.configs.models import Rollout
from controlplane.core.documents import apply
from controlplane.fleet.local.following import ASK_EVERY_S, Following, acknowledge
from controlplane.fleet.local.wanted import WantedConfig, read_wanted
from controlplane.objectives.models import InferenceModelRewrite, InferenceObjective
from tests.support.controlplane import ENDPOINTS, EXAMPLES, OBJECTIVE, OPERATOR, POOL, REWRITE, objective

pytestmark = pytest.mark.django_db


def named(document: dict[str, Any], name: str, **spec: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    found["metadata"]["name"] = name
    found["spec"].update(spec)
    return found


def dated(document: dict[str, Any], row: Any) -> dict[str, Any]:
    """As a picker gets it."""
    metadata = {"name": row.name, "creationTimestamp": row.created_at.isoformat()}
    return {**document, "metadata": metadata}


def test_a_pool_comes_with_its_endpoints_and_objects() -> None:
    second = named(ENDPOINTS, "rack-2", endpoints=[{"name": "c", "address": "c.example"}])
    second["spec"]["resolve"] = {"interval": "2s"}
    apply(OPERATOR, [*EXAMPLES.values(), second])
    (pool,) = read_wanted(Following()).pools
    assert (pool.name, pool.driver.type, pool.driver.simulated) == ("pool", "local", None)
    assert pool.endpoints == [*ENDPOINTS["spec"]["endpoints"], {"name": "c", "address": "c.example"}]
    assert pool.resolve == {"interval": "2s"}
    assert pool.objects == [
        dated(OBJECTIVE, InferenceObjective.objects.get()),
        dated(REWRITE, InferenceModelRewrite.objects.get()),
    ]


def test_pools_of_no_driver_and_objects_of_no_pool_are_nobodys() -> None:
    plain = named(POOL, "plain")
    del plain["spec"]["driver"]
    other = objective("other", poolRef={"name": "nowhere"})
    apply(OPERATOR, [POOL, plain, other])
    assert [(pool.name, pool.objects) for pool in read_wanted(Following()).pools] == [("pool", [])]


def test_many_pools_cost_as_few_queries_as_one() -> None:
    following = Following()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            read_wanted(following)
        return len(captured)

    apply(OPERATOR, list(EXAMPLES.values()))
    read_wanted(following)
    before = queries()
    apply(OPERATOR, [named(POOL, f"p{number}") for number in range(10)])
    assert queries() == before <= 5


CONFIG: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "metadata": {"name": "chat", "annotations": {"pointsman.dev/pools": "pool"}},
    "plugins": [{"type": "queue-scorer"}],
}


def test_a_pool_gets_its_configuration_and_tells_what_became_of_it() -> None:
    following = Following()
    apply(OPERATOR, [POOL, CONFIG])
    config = read_wanted(following).pools[0].config
    assert isinstance(config, WantedConfig)
    assert (config.document, config.revision) == ("chat", 1)
    acknowledge("pool", config, [])
    changed = copy.deepcopy(CONFIG)
    changed["plugins"] = [{"type": "kv-cache-utilization-scorer"}]
    apply(OPERATOR, [changed])
    newer = read_wanted(following).pools[0].config
    assert newer is not None
    assert newer.revision == 2
    acknowledge("pool", newer, ["plugins[0].type: unknown", "no path here"])
    rollout = Rollout.objects.first()
    assert rollout is not None
    assert (rollout.stage, rollout.acks.get().worker) == ("halted", "pool")
    assert rollout.acks.get().problems == [
        {"path": "plugins[0].type", "message": "unknown"},
        {"path": "", "message": "no path here"},
    ]
    after = read_wanted(following).pools[0].config
    assert after is not None
    assert after.revision == 1


def test_asking_again_is_rare_while_nothing_changes_and_never_stops() -> None:
    now = 0.0
    following = Following(lambda: now)
    apply(OPERATOR, [POOL, CONFIG])

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            following(["pool"])
        return len(captured)

    assert queries() > 1
    following(["pool"])
    assert queries() == 1
    now = ASK_EVERY_S
    assert queries() > 1
    assert following(["other"]) == {}
