"""The audit log on pages: who may read it, what it shows, what it is asked, and its pages."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.core import history
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.objectives.services import ObjectiveService
from controlplane.tenancy.services import TenantService
from tests.support.console import person, text_of
from tests.support.controlplane import ADMIN, OPERATOR, TENANT, objective

pytestmark = pytest.mark.django_db


def entries(page: str) -> list[tuple[str, ...]]:
    """Action, kind and name of what a page of the log shows."""
    found = re.findall(
        r'<span class="badge">(.*?)</span> <span>(.*?)</span> <(?:a [^>]*|strong)>(.*?)</', page
    )
    return [tuple(each) for each in found]


@pytest.fixture
def log() -> None:
    """Two objects, one of them changed."""
    ObjectiveService().create(ADMIN, objective("gold", priority=1))
    ObjectiveService().update(OPERATOR, "gold", objective("gold", priority=9))
    AuditEntry.objects.filter(action="update").update(request_id="r-1")
    TenantService().create(OPERATOR, TENANT)


@pytest.mark.usefixtures("log")
def test_the_log_tells_who_did_what_with_the_values_that_differ() -> None:
    page = text_of(person(Role.OPERATOR).get("/audit/"))
    assert entries(page)[0][1] == "User"  # who reads this was made last
    assert entries(page)[1:] == [
        ("create", "Tenant", "research"),
        ("update", "InferenceObjective", "gold"),
        ("create", "InferenceObjective", "gold"),
    ]
    assert re.findall(r"<li><code>(.*?)</code>", page) == ["spec.priority"]
    assert f"{OPERATOR.name} · {OPERATOR.channel}" in page
    assert 'href="/tenants/research/"' in page


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"kind": "Tenant"}, ["create"]),
        ({"name": "gold"}, ["update", "create"]),
        ({"name": "gol"}, []),
        ({"user": ADMIN.name, "name": "gold"}, ["create"]),
        ({"action": "update"}, ["update"]),
        ({"request": "r-1"}, ["update"]),
        ({"request": "r-2"}, []),
        ({"since": "2100-01-01T00:00"}, []),
        ({"until": "2100-01-01T00:00", "kind": "Tenant"}, ["create"]),
        ({"name": "\x00"}, None),
        ({"since": "yesterday"}, None),
    ],
)
def test_the_log_is_asked_by_kind_name_user_action_and_time(
    asked: dict[str, str], expected: list[str] | None
) -> None:
    answer = person(Role.OPERATOR).get("/audit/", asked)
    if expected is None:
        assert (answer.status_code, 'class="wrong"' in text_of(answer)) == (422, True)
        return
    assert [action for action, *_ in entries(text_of(answer))] == expected
    assert ("Nothing like that was changed" in text_of(answer)) is (not expected)


@pytest.mark.usefixtures("log")
def test_an_entry_shows_both_documents_and_every_change() -> None:
    row = AuditEntry.objects.get(action="update")
    client = person(Role.OPERATOR)
    page = text_of(client.get(f"/audit/{row.pk}/"))
    assert re.findall(r"  priority: (\d)", page) == ["1", "9"]
    assert "/audit/?kind=InferenceObjective&amp;name=gold" in page
    for number in (0, row.pk + 100, history.MAX_ID + 1):
        assert client.get(f"/audit/{number}/").status_code == 404


@pytest.mark.usefixtures("log")
def test_viewers_see_neither_the_log_nor_links_to_it() -> None:
    client = person(Role.VIEWER)
    assert client.get("/audit/").status_code == 403
    assert client.get(f"/audit/{AuditEntry.objects.latest('id').pk}/").status_code == 403
    assert "/audit/" not in text_of(client.get("/tenants/research/"))
    assert "kind=Tenant&amp;name=research" in text_of(person(Role.OPERATOR).get("/tenants/research/"))


def fill(number: int) -> None:
    for each in range(number):
        changed = {"before": {}, "after": {}}
        AuditEntry.objects.create(
            actor="a", channel="api", action="update", kind="Pair", name=each, **changed
        )


def names(page: str) -> list[int]:
    return [int(name) for _, _, name in entries(page)]


def link(page: str, text: str) -> str | None:
    found = re.search(rf'href="(\?[^"]*)">{text}<', page)
    return None if found is None else found[1].replace("&amp;", "&")


def test_pages_follow_one_another_and_stay_where_they_are_when_entries_are_added() -> None:
    client = person(Role.OPERATOR)
    fill(2 * history.PAGE + 5)
    last = 2 * history.PAGE + 4
    first = text_of(client.get("/audit/?kind=Pair"))
    assert (names(first), link(first, "Newer")) == (list(range(last, last - history.PAGE, -1)), None)
    second: Any = link(first, "Older")
    fill(1)
    page = text_of(client.get(f"/audit/{second}"))
    assert names(page) == list(range(last - history.PAGE, last - 2 * history.PAGE, -1))
    third = text_of(client.get(f"/audit/{link(page, 'Older')}"))
    assert (names(third), link(third, "Older")) == ([4, 3, 2, 1, 0], None)
    assert names(text_of(client.get(f"/audit/{link(third, 'Newer')}"))) == names(page)
    newest = text_of(client.get(f"/audit/{link(page, 'Newer')}"))
    assert names(newest) == names(first)
    assert link(newest, "Newer") is not None


def test_the_log_asks_the_database_as_often_for_many_entries_as_for_one() -> None:
    client = person(Role.OPERATOR)
    AuditEntry.objects.update(at=timezone.now() - timedelta(days=1))
    counts = []
    for number in (1, 25):
        fill(number)
        with CaptureQueriesContext(connection) as captured:
            client.get("/audit/")
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 6
