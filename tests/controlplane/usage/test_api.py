"""Usage over HTTP: filters, pages, refusals, and who may look."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.core.roles import Role
from controlplane.usage.ledger import book
from controlplane.usage.models import DeadLetter
from tests.support.controlplane import client
from tests.support.usage import usage_record

pytestmark = pytest.mark.django_db

AT = datetime(2027, 3, 4, 5, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def records() -> None:
    book([usage_record(1, at=AT, cached_tokens=3), usage_record(2, at=AT + 3600, tenant="sales", status=500)])


def get(path: str, role: Role = Role.VIEWER, **parameters: Any) -> Any:
    return client(role).get(f"/api/v1/usage/{path}", parameters)


def test_a_record_is_shown_whole() -> None:
    (shown,) = get("records", tenant="research").json()["items"]
    assert shown == {
        "id": f"{1:032x}",
        "at": "2027-03-04T05:00:00+00:00",
        "pool": "pool",
        "requestedModel": "chat",
        "servedModel": "llama",
        "tenant": "research",
        "objective": "",
        "status": 200,
        "ending": "natural",
        "promptTokens": 10,
        "completionTokens": 5,
        "cachedTokens": 3,
        "streamed": False,
        "durationSeconds": 0.0,
        "ttftSeconds": None,
        "revision": "",
        "cost": None,
        "currency": "",
    }


def test_totals_are_shown() -> None:
    (first, second) = get("hourly").json()["items"]
    assert (first["tenant"], first["errors"], second["tenant"], second["errors"]) == (
        "sales",
        1,
        "research",
        0,
    )
    assert second == {
        "start": "2027-03-04T05:00:00+00:00",
        "tenant": "research",
        "model": "llama",
        "pool": "pool",
        "currency": "",
        "requests": 1,
        "errors": 0,
        "promptTokens": 10,
        "completionTokens": 5,
        "cachedTokens": 3,
        "durationSeconds": 0.0,
        "cost": "0",
    }
    assert get("daily").json()["total"] == 2


@pytest.mark.parametrize(
    ("path", "parameters", "total"),
    [
        ("records", {"status": "500"}, 1),
        ("records", {"since": "2027-03-04T06:00:00Z"}, 1),
        ("records", {"until": "2027-03-04T06:00:00+01:00"}, 0),
        ("records", {"model": "llama", "requestedModel": "chat"}, 2),
        ("hourly", {"pool": "other"}, 0),
        ("daily", {"since": "2027-03-04T00:00:00Z", "until": "2027-03-05T00:00:00Z"}, 2),
    ],
)
def test_filters_choose(path: str, parameters: dict[str, str], total: int) -> None:
    assert get(path, **parameters).json()["total"] == total


@pytest.mark.parametrize(
    ("path", "parameters", "place"),
    [
        ("records", {"status": "ok"}, "status"),
        ("records", {"since": "yesterday"}, "since"),
        ("hourly", {"until": "2027-03-04T06:00:00"}, "until"),
        ("hourly", {"status": "500"}, "status"),
        ("daily", {"order": "tenant"}, "order"),
        ("dead-letters", {"limit": "0"}, "limit"),
    ],
)
def test_what_makes_no_sense_is_refused(path: str, parameters: dict[str, str], place: str) -> None:
    answer = get(path, **parameters)
    assert answer.status_code == 422
    assert [detail["path"] for detail in answer.json()["details"]] == [place]


def test_dead_letters_are_shown() -> None:
    DeadLetter.objects.create(entry="1-0", reason="no", payload="x")
    (shown,) = get("dead-letters").json()["items"]
    assert (shown["id"], shown["reason"], shown["payload"]) == ("1-0", "no", "x")


@pytest.mark.parametrize("path", ["records", "hourly", "daily", "dead-letters"])
def test_workers_may_not_look_and_a_page_is_few_queries(path: str) -> None:
    assert get(path, Role.WORKER).status_code == 403
    seen = client(Role.VIEWER)
    with CaptureQueriesContext(connection) as queries:
        assert seen.get(f"/api/v1/usage/{path}").status_code == 200
    assert len(queries) <= 4
