"""Endpoints that pickers report: written when something is another, shown with health and load."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.core import changes
from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.fleet.endpoints import EndpointReports, Seen, addresses, seen_in
from controlplane.fleet.models import PoolEndpoint
from controlplane.fleet.services import PoolService
from tests.support.controlplane import ADMIN, POOL, client

pytestmark = pytest.mark.django_db
PAGE = "/api/v1/pools/pool/endpoints"


def row(number: int, **values: Any) -> dict[str, Any]:
    return {
        "name": f"e{number}",
        "address": f"10.0.0.{number}:8000",
        "fresh": True,
        "listens": True,
        **values,
    }


def seen(number: int, **values: Any) -> Seen:
    return seen_in(row(number, **values))


@pytest.fixture
def reports() -> EndpointReports:
    apply(ADMIN, [POOL])
    return EndpointReports()


@pytest.mark.parametrize(
    ("values", "health"),
    [
        ({}, "healthy"),
        ({"fresh": False}, "stale"),
        ({"fresh": False, "listens": False}, "unreachable"),
        ({"ejection": {"state": "ejected"}}, "ejected"),
        ({"ejection": {"state": "probing"}}, "healthy"),
        ({"ejection": None}, "healthy"),
    ],
)
def test_health_is_what_the_picker_makes_of_an_endpoint(values: dict[str, Any], health: str) -> None:
    assert seen(1, **values).health == health


def test_addresses_of_the_sixth_version_and_load_are_read() -> None:
    found = seen_in({**row(1, waiting=2.0, kvUsage=0.5, labels={"a": "b"}), "address": "[fd00::1]:8001"})
    assert (found.key, found.load) == (("fd00::1", 8001), {"waiting": 2.0, "kvUsage": 0.5})


def test_rows_follow_what_is_reported_and_only_other_addresses_are_changes(reports: EndpointReports) -> None:
    before = changes.current()
    reports.write({"pool": [seen(1), seen(2)]}, ["pool"])
    assert changes.current() == before + 1
    reports.write({"pool": [seen(1, waiting=3.0), seen(2)]}, ["pool"])
    assert changes.current() == before + 1
    reports.write({"pool": [seen(2)]}, ["pool"])
    assert (addresses(["pool"]), changes.current()) == ({"pool": {("10.0.0.2", 8000)}}, before + 2)


def test_a_round_without_news_writes_and_reads_nothing(reports: EndpointReports) -> None:
    reports.write({"pool": [seen(1)]}, ["pool"])
    with CaptureQueriesContext(connection) as captured:
        reports.write({"pool": [seen(1)]}, ["pool"])
    assert len(captured) == 0


def test_a_new_driver_goes_on_from_what_is_there(reports: EndpointReports) -> None:
    reports.write({"pool": [seen(1)]}, ["pool"])
    before = changes.current()
    EndpointReports().write({"pool": [seen(1)]}, ["pool"])
    assert (PoolEndpoint.objects.count(), changes.current()) == (1, before)


def test_endpoints_of_a_pool_that_is_gone_go_with_it(reports: EndpointReports) -> None:
    reports.write({"pool": [seen(1)]}, ["pool"])
    PoolService().delete(ADMIN, "pool")
    reports.write({}, [])
    assert PoolEndpoint.objects.count() == 0


def test_the_api_shows_pages_of_them_to_whoever_may_read_pools(reports: EndpointReports) -> None:
    reports.write({"pool": [seen(1, waiting=1.0), seen(2), seen(3, listens=False)]}, ["pool"])
    viewer = client(Role.VIEWER)
    with CaptureQueriesContext(connection) as captured:
        page = viewer.get(f"{PAGE}?limit=2").json()
    assert (page["total"], [each["name"] for each in page["items"]]) == (3, ["e1", "e2"])
    assert len(captured) <= 6
    first = page["items"][0]
    assert (first["address"], first["port"], first["load"]) == ("10.0.0.1", 8000, {"waiting": 1.0})
    assert [each["name"] for each in viewer.get(f"{PAGE}?health=unreachable").json()["items"]] == ["e3"]
    assert viewer.get(f"{PAGE}?state=x").status_code == 422
    assert viewer.get("/api/v1/pools/none/endpoints").status_code == 404
    assert client(Role.WORKER).get(PAGE).status_code == 403
