"""``pool-load-scorer`` and ``pool-load-filter``: what pools say of themselves decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.base import TypedName
from ipp.interfaces.models import ModelData, PoolLoad, PoolLoads, ServedModel
from ipp.plugins.filters.pool_load import PoolLoadFilter, PoolLoadFilterParams
from ipp.plugins.scorers.pool_load import PoolLoadScorer, PoolLoadScorerParams
from tests.support.processors import pipeline_of
from tests.support.served_models import selecting

ANY: Any = None
MODELS = [ServedModel(name) for name in "abcd"]
LOADS = {
    "a": PoolLoad(utilization=0.25, queue_depth=1.0, running_requests=8.0),
    "b": PoolLoad(utilization=0.5, queue_depth=9.0),
    "c": PoolLoad(cpu_usage=0.9),
}


def scores(loads: dict[str, PoolLoad], **params: Any) -> list[float]:
    handle: Any = SimpleNamespace(data=ModelData())
    handle.data.table(PoolLoads).by_model = loads
    scorer = PoolLoadScorer(TypedName("s", "s"), PoolLoadScorerParams(**params), handle)
    return list(scorer.score_models(ANY, MODELS))


def kept(loads: dict[str, PoolLoad], **params: Any) -> str:
    handle: Any = SimpleNamespace(data=ModelData())
    handle.data.table(PoolLoads).by_model = loads
    found = PoolLoadFilter(TypedName("f", "f"), PoolLoadFilterParams(**params), handle)
    return "".join(model.name for model in found.filter_models(ANY, MODELS))


def test_the_fullest_of_what_a_pool_says_decides_and_the_unknown_is_in_the_middle() -> None:
    assert scores(LOADS) == [0.75, 0.0, 0.5, 0.5]
    assert scores(LOADS, full_queue_depth=36.0) == [0.75, 0.5, 0.5, 0.5]
    assert scores(LOADS, full_queue_depth=36.0, full_utilization=0.5) == [0.5, 0.0, 0.5, 0.5]
    assert scores(LOADS, full_running_requests=16.0) == [0.5, 0.0, 0.5, 0.5]


def test_full_pools_are_left_out_unless_all_are_full() -> None:
    assert kept(LOADS) == "abcd"
    assert kept(LOADS, max_queue_depth=8.0) == "acd"
    assert kept(LOADS, max_utilization=0.2) == "cd"
    full = dict.fromkeys("abcd", PoolLoad(queue_depth=50.0))
    assert kept(full) == "abcd"
    assert kept(full, when_all_full="refuse") == ""


@pytest.mark.parametrize("kind", ["pool-load-scorer", "pool-load-filter"])
def test_both_need_somebody_who_asks_the_pools(tmp_path: Any, kind: str) -> None:
    weights = {"pool-load-scorer": 1.0}
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(selecting(tmp_path, kind, weights=weights if kind in weights else {}))
    (error,) = caught.value.errors
    assert str(error) == (
        f"plugins[1]: '{kind}' needs the load of each model's pool, which nothing in datalayer provides; "
        "list a router-metrics-collector there"
    )
    pipeline_of(
        selecting(
            tmp_path,
            kind,
            weights=weights if kind in weights else {},
            collectors=["router-metrics-collector"],
        )
    )
