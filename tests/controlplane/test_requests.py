"""Requests have ids: the same one on the answer, on the page, in the log and in the audit log."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from django.test import AsyncClient, Client

from controlplane.core import requests, users
from controlplane.core.documents import export
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.fleet.simulated import create_simulated
from tests.support.controlplane import ADMIN, client, objective

pytestmark = pytest.mark.django_db

DRAWN = re.compile(r"[0-9a-f]{32}")
OF_PROXY = "7f1c2d3e-edge.1"


def person(role: Role, *, raises: bool = True) -> Client:
    found = Client(raise_request_exception=raises)
    found.force_login(users.put(users.SYSTEM, str(role), role))
    return found


def named_on(answer: Any) -> str:
    """The id on the page, which is that on the answer."""
    found = re.search(r"Request <code>(.*?)</code>", answer.content.decode())
    assert found is not None
    assert answer["X-Request-ID"] == found[1]
    return found[1]


def test_every_answer_has_an_id_of_its_own() -> None:
    api = client()
    answers = [api.get("/api/v1/whoami"), api.get("/api/v1/nowhere"), Client().get("/login/")]
    ids = {answer["X-Request-ID"] for answer in answers}
    assert len(ids) == 3
    assert all(DRAWN.fullmatch(found) for found in ids)
    assert requests.current() == ""


async def test_asynchronous_answers_have_one_too() -> None:
    answer = await AsyncClient().get("/nowhere/")
    assert (answer.status_code, named_on(answer)) == (404, answer["X-Request-ID"])
    assert requests.current() == ""


@pytest.mark.parametrize(
    ("proxies", "given", "is_taken"),
    [
        (0, OF_PROXY, False),
        (1, OF_PROXY, True),
        (1, "x" * 65, False),
        (1, "a b", False),
        (1, "", False),
    ],
)
def test_only_a_trusted_proxy_names_requests(settings: Any, proxies: int, given: str, is_taken: bool) -> None:
    settings.TRUSTED_PROXIES = proxies
    found = Client().get("/login/", headers={"X-Request-ID": given})["X-Request-ID"]
    assert (found == given) is is_taken
    assert is_taken or DRAWN.fullmatch(found)


def test_the_audit_log_says_which_request_made_a_change() -> None:
    api = client()
    made = api.post("/api/v1/objectives", objective(), format="json")
    assert list(AuditEntry.objects.filter(kind="User").values_list("request_id", flat=True)) == [""]
    found = api.get(f"/api/v1/audit?request_id={made['X-Request-ID']}").json()["items"]
    assert [(entry["kind"], entry["requestId"]) for entry in found] == [
        ("InferenceObjective", made["X-Request-ID"])
    ]


def test_pages_that_refuse_say_which_request_it_was() -> None:
    create_simulated(ADMIN, "edge", ["llama"], 1)
    operator, viewer = person(Role.OPERATOR), person(Role.VIEWER)
    said = {"text": "a: [", "comment": "why", "version": "1", "do": "save"}
    answers = {
        403: viewer.post("/new/tenant/", {"name": "acme"}),
        404: viewer.get("/pools/none/"),
        409: operator.post("/pools/edge/rollout/promote/", {"rollout": "0"}),
        422: operator.post("/pools/edge/config/", said),
    }
    assert {answer.status_code: named_on(answer) for answer in answers.values()}.keys() == answers.keys()
    assert "Request <code>" not in viewer.get("/pools/edge/").content.decode()


def test_a_form_from_elsewhere_is_refused_with_a_page_and_its_id() -> None:
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post("/login/", {"username": "ann", "password": "x"})
    assert (answer.status_code, named_on(answer)) == (403, answer["X-Request-ID"])
    assert "did not come from a form of the console" in answer.content.decode()


def test_a_failure_is_in_the_log_by_the_id_on_its_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a defect")

    browser = person(Role.VIEWER, raises=False)
    lines: list[str] = []
    formatter = requests.LineFormatter()
    monkeypatch.setattr(caplog.handler, "emit", lambda record: lines.append(formatter.format(record)))
    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", broken)
    answer = browser.get("/")
    assert answer.status_code == 500
    (line,) = lines
    assert line.splitlines()[0].endswith(f"Internal Server Error: / (request {named_on(answer)})")
    assert "ValueError: a defect" in line


def test_lines_of_the_log_outside_requests_end_with_their_message() -> None:
    record = logging.LogRecord("controlplane.x", logging.WARNING, "x.py", 1, "two\nlines", None, None)
    assert requests.LineFormatter().format(record).endswith(" WARNING controlplane.x: two\\nlines")


def test_documents_know_nothing_of_requests() -> None:
    client().post("/api/v1/objectives", objective(), format="json")
    assert "request" not in str(export(ADMIN)).lower()
