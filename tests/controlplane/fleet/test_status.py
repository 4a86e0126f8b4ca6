"""What drivers report of pools, and who sees it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.core.errors import MissingError
from controlplane.core.roles import Role
from controlplane.fleet.models import PoolStatus
from controlplane.fleet.services import PoolService
from controlplane.fleet.status import FORGOTTEN_AFTER, STALE_AFTER, report, status_of
from tests.support.controlplane import OPERATOR, POOL, VIEWER, client

pytestmark = pytest.mark.django_db


def test_a_pool_nobody_runs_has_no_report() -> None:
    PoolService().create(OPERATOR, POOL)
    assert client(Role.VIEWER).get("/api/v1/pools/pool/status").json() == {
        "pool": "pool",
        "driver": "local",
        "reportedAt": None,
        "runner": None,
        "stale": True,
        "report": None,
    }
    with pytest.raises(MissingError):
        status_of(VIEWER, "other")
    assert client().get("/api/v1/pools/other/status").status_code == 404


def test_the_last_report_counts_until_it_is_old() -> None:
    PoolService().create(OPERATOR, POOL)
    report("host:1", {"pool": {"state": "starting"}})
    report("host:1", {"pool": {"state": "ready"}})
    shown = status_of(VIEWER, "pool")
    assert (shown["runner"], shown["stale"], shown["report"]) == ("host:1", False, {"state": "ready"})
    row = PoolStatus.objects.get()
    row.reported_at -= STALE_AFTER + timedelta(seconds=1)
    row.save()
    assert status_of(VIEWER, "pool")["stale"] is True


def test_pools_a_runner_gave_up_are_forgotten_and_others_stay() -> None:
    report("host:1", {"a": {}, "b": {}})
    report("host:2", {"c": {}})
    report("host:1", {"b": {}})
    assert set(PoolStatus.objects.values_list("pool", flat=True)) == {"b", "c"}


def test_reports_of_pools_that_nobody_runs_any_more_are_forgotten() -> None:
    report("host:1", {"a": {}})
    row = PoolStatus.objects.get()
    row.reported_at -= FORGOTTEN_AFTER + timedelta(seconds=1)
    row.save()
    report("host:2", {"b": {}})
    assert [row.pool for row in PoolStatus.objects.all()] == ["b"]
