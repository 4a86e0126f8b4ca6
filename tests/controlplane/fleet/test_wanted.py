"""What the database says should run."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.core.documents import apply
from controlplane.fleet.local.wanted import marker, read_wanted
from controlplane.fleet.services import EndpointListService, PoolService
from controlplane.objectives.models import InferenceModelRewrite, InferenceObjective
from controlplane.objectives.services import ObjectiveService
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
    (pool,) = read_wanted().pools
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
    assert [(pool.name, pool.objects) for pool in read_wanted().pools] == [("pool", [])]


def test_many_pools_cost_as_few_queries_as_one() -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            read_wanted()
        return len(captured)

    apply(OPERATOR, list(EXAMPLES.values()))
    before = queries()
    apply(OPERATOR, [named(POOL, f"p{number}") for number in range(10)])
    assert queries() == before <= 4


def test_the_marker_moves_with_every_change() -> None:
    seen = [marker()]
    PoolService().create(OPERATOR, POOL)
    seen.append(marker())
    EndpointListService().create(OPERATOR, ENDPOINTS)
    seen.append(marker())
    ObjectiveService().create(OPERATOR, objective())
    seen.append(marker())
    ObjectiveService().update(OPERATOR, "interactive", objective(priority=3))
    seen.append(marker())
    ObjectiveService().delete(OPERATOR, "interactive")
    seen.append(marker())
    assert all(before != after for before, after in pairwise(seen))
    assert marker() == seen[-1]
