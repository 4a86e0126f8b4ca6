"""Which database an address means, and what is said while it is away."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from controlplane.celery import Turn
from controlplane.core.api.errors import answer
from controlplane.database import POSTGRESQL, SQLITE, is_away, of_url
from dataplane.errors import ConfigError


def test_an_address_s_own_options_go_before_ours() -> None:
    found = of_url("postgres://ada:p%40ss@db.example:5433/control?sslmode=require&connect_timeout=9", "X")
    assert (found["ENGINE"], found["HOST"], found["PASSWORD"]) == (POSTGRESQL, "db.example", "p@ss")
    assert (found["CONN_MAX_AGE"], found["CONN_HEALTH_CHECKS"]) == (60, True)
    options = found["OPTIONS"]
    assert (options["sslmode"], options["connect_timeout"], options["tcp_user_timeout"]) == (
        "require",
        9,
        15000,
    )
    assert of_url("sqlite:////tmp/x.sqlite3", "X")["ENGINE"] == SQLITE


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://a:secret@b/c", "x://a:secret@b", "postgres://a:secret@h:no/x"]
)
def test_what_is_no_address_of_ours_is_refused_without_being_told(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of_url(url, "DATABASE_URL")
    assert str(caught.value).startswith("DATABASE_URL: is no address of a database: use postgres://")
    assert "secret" not in str(caught.value)


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="pip install 'pointsman\\[postgres\\]'"):
        of_url("postgres://a@b/c", "DATABASE_URL")


@pytest.mark.parametrize("error", [OperationalError("refused"), InterfaceError("closed")])
def test_the_api_answers_503_while_the_database_is_away(error: Exception) -> None:
    found = answer(error, {})
    assert found is not None
    assert (found.status_code, found["Retry-After"]) == (503, "2")
    assert found.data == {
        "code": "unavailable",
        "message": "the database does not answer; try again",
        "details": [],
    }


def test_a_task_says_once_that_it_waits_and_once_that_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    task: Any = Turn()
    task.name = "usage.move"
    with caplog.at_level(logging.WARNING):
        task.on_success(1, "id", (), {})
        for _ in range(3):
            task.on_failure(OperationalError("refused"), "id", (), {}, None)
        task.on_failure(ValueError("a defect"), "id", (), {}, None)
        for _ in range(2):
            task.on_success(1, "id", (), {})
    assert [record.getMessage() for record in caplog.records] == [
        "usage.move waits, a server is away: refused",
        "usage.move goes on",
    ]


@pytest.mark.django_db
def test_a_question_that_makes_no_sense_is_none_of_a_server_that_is_away() -> None:
    with pytest.raises(DatabaseError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT x FROM nowhere")
    assert not is_away(caught.value)
    assert answer(caught.value, {}) is None
    assert is_away(OperationalError("refused"))
    assert not is_away(ValueError("a defect"))
