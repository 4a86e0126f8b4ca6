"""Fifteen minutes of each worker, merged for a pool, within caps."""

from __future__ import annotations

from unittest.mock import patch

from controlplane.telemetry import recent as module
from controlplane.telemetry.rings import Rings
from tests.support.telemetry import summary

NOW = 1_800_000_000.0


def make(now: float = NOW) -> tuple[Rings, list[float]]:
    clock = [now]
    return Rings(lambda: clock[0]), clock


def test_workers_of_a_pool_add_up() -> None:
    rings, _ = make()
    rings.add(summary("w1", NOW, inflight=2, ttft_p95=0.5, hit_ratio=1.0, queue=4.0, endpoints_total=3))
    rings.add(summary("w2", NOW, inflight=1, ttft_p95=0.7, hit_ratio=0.0, requests=30, queue=5.0))
    (point,) = rings.points("pool")
    assert (point["requestsPerS"], point["errorsPerS"], point["inflight"]) == (40.0, 2.0, 3)
    assert (point["ttftP95"], point["hitRatio"], point["queue"]) == (0.7, 0.25, 5.0)
    assert (point["workers"], point["endpointsTotal"], point["at"]) == (2, 3, int(NOW))
    latest = rings.latest("pool")
    assert latest is not None
    assert latest["point"] == point
    assert [(worker["worker"], worker["stale"]) for worker in latest["workers"]] == [
        ("w1", False),
        ("w2", False),
    ]


def test_only_news_are_told() -> None:
    rings, _ = make()
    rings.add(summary("w1", NOW))
    number, names = rings.changed(0)
    assert names == ["pool"]
    assert rings.changed(number) == (number, [])
    rings.add(summary("w3", NOW, pool="other"))
    assert rings.changed(number)[1] == ["other"]
    assert rings.changed(number, "pool")[1] == []


def test_seconds_are_kept_for_the_window_and_repeats_are_left_out() -> None:
    rings, clock = make()
    for second in range(1000):
        clock[0] = NOW + second
        rings.add(summary("w1", clock[0]))
        rings.add(summary("w1", clock[0]))
    points = rings.points("pool")
    assert (len(points), points[-1]["at"], points[0]["at"]) == (900, int(NOW) + 999, int(NOW) + 100)
    assert len(rings.points("pool", 10)) == 11
    rings.add(summary("w1", NOW - 2000))
    assert rings.points("pool")[0]["at"] == int(NOW) + 100


def test_a_silent_worker_grows_stale_and_is_forgotten() -> None:
    rings, clock = make()
    rings.add(summary("w1", NOW))
    clock[0] += 6
    latest = rings.latest("pool")
    assert latest is not None
    assert (latest["point"], latest["workers"][0]["stale"]) == (None, True)
    clock[0] += 1000
    assert (rings.pools(), rings.latest("pool"), rings.points("pool")) == ([], None, [])


def test_whoever_was_silent_longest_makes_room() -> None:
    rings, _ = make()
    with patch.object(module, "MAX_WORKERS", 2):
        for worker in ("w1", "w2", "w3"):
            rings.add(summary(worker, NOW))
    latest = rings.latest("pool")
    assert latest is not None
    assert [worker["worker"] for worker in latest["workers"]] == ["w2", "w3"]
