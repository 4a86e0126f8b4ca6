"""Pages while the database is away: whatever asks it, a plain page says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import OperationalError, connection
from django.test import Client

from controlplane.core import passwords, users
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from tests.support.console import PASSWORD, person, text_of

pytestmark = pytest.mark.django_db


@contextmanager
def away() -> Iterator[None]:
    """No question is answered."""

    def refuse(*_: Any) -> None:
        raise OperationalError("connection refused")

    with connection.execute_wrapper(refuse):
        yield


def is_told(answer: Any) -> bool:
    page = text_of(answer)
    said = ("The database does not answer" in page, bool(re.search(r"Request <code>[0-9a-f]{32}<", page)))
    return (answer.status_code, answer["Retry-After"], *said) == (503, "5", True, True)


@pytest.mark.parametrize("path", ["/", "/pools/", "/pools/edge/config/", "/tenants/", "/audit/", "/admin/"])
def test_a_page_that_cannot_ask_the_database_is_a_plain_503(path: str) -> None:
    client = person(Role.ADMIN)
    with away():
        assert is_told(client.get(path))
    assert client.get("/").status_code == 200


def test_so_is_what_is_posted_and_a_login() -> None:
    client = person(Role.OPERATOR)
    before = AuditEntry.objects.count()
    with away():
        assert is_told(client.post("/new/tenant/", {"name": "acme"}))
        assert is_told(Client().post("/login/", {"username": "ann", "password": "x"}))
        assert is_told(client.get("/", headers={"HX-Request": "true"}))
    assert AuditEntry.objects.count() == before


def test_the_database_may_go_away_beside_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    client = Client(raise_request_exception=False)
    save = SessionStore.save

    def refuse(self: SessionStore, must_create: bool = False) -> None:
        if not must_create:
            raise OperationalError("connection refused")
        save(self, must_create)

    monkeypatch.setattr(SessionStore, "save", refuse)
    # A login makes the session; what is in it is written when the page is made already.
    assert is_told(client.post("/login/", {"username": "ann", "password": PASSWORD}))


def test_a_login_page_needs_no_database() -> None:
    with away():
        assert Client().get("/login/").status_code == 200


def test_a_defect_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    client = person(Role.OPERATOR)
    client.raise_request_exception = False

    def broken(*_: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("controlplane.fleet.views.pool_rows", broken)
    answer = client.get("/pools/")
    assert (answer.status_code, "its log says why" in text_of(answer)) == (500, True)
