"""The last minutes as charts draw them: of the busiest pools, and of all."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from controlplane.telemetry import columns
from controlplane.telemetry.rings import Rings
from tests.support.telemetry import summary

NOW = 1_800_000_000.0


def make() -> tuple[Rings, list[float]]:
    clock = [NOW]
    return Rings(lambda: clock[0]), clock


def add(rings: Rings, pool: str, at: float, worker: str = "w1", **fields: Any) -> None:
    rings.add(summary(worker, at, pool=pool, **fields))


def test_pools_add_up_and_workers_of_one_pool_see_the_same_servers() -> None:
    rings, _ = make()
    add(rings, "a", NOW, "w1", queue=4.0, kv_usage=0.5, endpoints_ready=3, ttft_p95=0.2)
    add(rings, "a", NOW, "w2", queue=5.0, kv_usage=0.4, endpoints_ready=3, ttft_p95=0.1)
    add(rings, "b", NOW, queue=2.0, kv_usage=0.1, endpoints_ready=1, ttft_p95=0.9)
    told = columns.history(rings, "", 2)
    assert (told["at"], told["seconds"], list(told["pools"])) == (int(NOW) - 1, 2, ["a", "b"])
    assert told["pools"]["a"]["requestsPerS"] == [None, 20.0]
    assert told["pools"]["a"]["queue"] == [None, 5.0]
    total = {name: values[1] for name, values in told["total"].items()}
    assert (total["requestsPerS"], total["errorsPerS"], total["queue"]) == (30.0, 3.0, 7.0)
    assert (total["ttftP95"], total["kvUsage"]) == (0.9, 0.4)
    assert columns.present(rings, "")["total"] == total


def test_a_worker_that_speaks_late_leaves_no_dent_and_one_that_is_silent_a_gap() -> None:
    rings, clock = make()
    for second in (0, 1, 3):
        add(rings, "a", NOW + second, requests=second + 1)
    clock[0] = NOW + 9
    line = columns.history(rings, "", 10)["pools"]["a"]["requestsPerS"]
    assert line == [1.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, None]
    assert columns.present(rings, "") == {"at": int(NOW) + 9, "total": None, "pools": {}}
    later = columns.history(rings, "", 3)["pools"]["a"]["requestsPerS"]
    assert later == [4.0, 4.0, None]  # what was said before the first second holds as well


def test_only_the_busiest_pools_have_lines_and_all_count() -> None:
    rings, _ = make()
    for number, name in enumerate(("a", "b", "c")):
        add(rings, name, NOW, requests=number)
    with patch.object(columns, "MAX_POOLS", 2):
        told = columns.history(rings, "", 1)
    assert (list(told["pools"]), told["total"]["requestsPerS"]) == (["c", "b"], [3.0])


def test_one_pool_alone_and_none_at_all() -> None:
    rings, _ = make()
    add(rings, "a", NOW)
    add(rings, "b", NOW)
    told = columns.history(rings, "b", 1)
    assert (list(told["pools"]), told["total"]["requestsPerS"]) == (["b"], [10.0])
    assert columns.present(rings, "b")["pools"].keys() == {"b"}
    none = columns.history(rings, "c", 2)
    assert (none["pools"], none["total"]["queue"]) == ({}, [None, None])
