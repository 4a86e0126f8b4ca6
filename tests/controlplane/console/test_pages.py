"""Pages of the console: who may see and do what, and what a post without JavaScript does."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.configs.models import ConfigDocument, ConfigRevision
from controlplane.core import passwords, users
from controlplane.core.models import AuditEntry, LoginFailure
from controlplane.core.roles import Role
from controlplane.fleet.models import InferencePool
from controlplane.fleet.simulated import create_simulated
from controlplane.tenancy.models import Tenant, VirtualKey
from tests.support.console import PASSWORD, config_text, person, text_of
from tests.support.controlplane import ADMIN

pytestmark = pytest.mark.django_db

PAGES = ["/", "/pools/", "/pools/edge/", "/pools/edge/config/", "/tenants/", "/password/"]


@pytest.fixture
def pool() -> None:
    create_simulated(ADMIN, "edge", ["llama"], 2)


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("path", PAGES)
def test_pages_ask_for_a_login_first_and_carry_a_strict_policy(path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={path}")
    seen = person(Role.VIEWER).get(path)
    assert seen.status_code == 200
    assert "script-src 'self'" in seen["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text_of(seen))


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize(
    "path", ["/audit/", "/audit/1/", "/styleguide/", "/new/pool/", "/pools/edge/delete/"]
)
def test_pages_for_operators_have_nothing_inline_either(path: str) -> None:
    seen = person(Role.OPERATOR).get(path.replace("1", str(AuditEntry.objects.latest("id").pk)))
    assert seen.status_code == 200
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text_of(seen))


def test_a_login_with_the_password_opens_the_console_and_a_wrong_one_does_not() -> None:
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    client = Client()
    refused = client.post("/login/", {"username": "ann", "password": "wrong"})
    assert refused.status_code == 200
    assert client.get("/").status_code == 302
    opened = client.post("/login/", {"username": "ann", "password": PASSWORD})
    assert (opened.status_code, opened["Location"]) == (302, "/")
    assert client.get("/").status_code == 200
    assert LoginFailure.objects.count() == 0


def test_the_styleguide_shows_every_component_in_both_themes_to_whoever_may_change_things() -> None:
    assert person(Role.VIEWER).get("/styleguide/").status_code == 403
    page = text_of(person(Role.OPERATOR).get("/styleguide/"))
    for theme in ("light", "dark"):
        assert page.count(f'data-theme="{theme}"') == 1
    identities = re.findall(r' id="([^"]+)"', page)
    assert len(identities) == len(set(identities))
    for state in ("ok", "warn", "bad", "idle"):
        assert page.count(f"status-{state}") >= 2


@pytest.mark.parametrize("path", ["/", "/pools/", "/tenants/"])
def test_where_there_is_nothing_yet_only_whoever_may_make_one_is_told_how(path: str) -> None:
    assert "Make one" not in text_of(person(Role.VIEWER).get(path))
    assert "Make one" in text_of(person(Role.OPERATOR).get(path))


def test_workers_do_not_log_in() -> None:
    user = users.put(users.SYSTEM, "picker", Role.WORKER)
    user.set_password(PASSWORD)
    user.save()
    answer = Client().post("/login/", {"username": "picker", "password": PASSWORD})
    assert "Workers do not log in" in text_of(answer)


def test_a_post_without_the_forms_token_changes_nothing() -> None:
    user = users.put(users.SYSTEM, "ann", Role.OPERATOR)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    answer = client.post("/new/pool/", {"name": "edge", "models": "llama", "replicas": "2"})
    assert (answer.status_code, InferencePool.objects.count()) == (403, 0)


def test_an_operator_makes_a_pool_with_its_configuration_and_deletes_both_by_its_name() -> None:
    client = person(Role.OPERATOR)
    made = client.post("/new/pool/", {"name": "edge", "models": "llama, qwen", "replicas": "2"})
    assert (made.status_code, made["Location"]) == (302, "/pools/edge/")
    simulated = InferencePool.objects.get(name="edge").spec["driver"]["simulated"]
    assert (simulated["replicas"], simulated["models"]) == (2, ["llama", "qwen"])
    assert ConfigDocument.objects.get(name="edge").pools == ["edge"]
    assert {entry.channel for entry in AuditEntry.objects.filter(kind="InferencePool")} == {"console"}
    wrong = client.post("/pools/edge/delete/", {"typed": "edg"})
    assert (wrong.status_code, InferencePool.objects.count()) == (422, 1)
    gone = client.post("/pools/edge/delete/", {"typed": "edge"})
    assert (gone["Location"], InferencePool.objects.count(), ConfigDocument.objects.count()) == (
        "/pools/",
        0,
        0,
    )


@pytest.mark.usefixtures("pool")
def test_a_name_that_is_taken_or_bad_is_refused_with_its_reason() -> None:
    client = person(Role.OPERATOR)
    before = InferencePool.objects.get(name="edge").version
    taken = client.post("/new/pool/", {"name": "edge", "models": "llama", "replicas": "2"})
    assert (taken.status_code, "there is a pool edge already" in text_of(taken)) == (422, True)
    bad = client.post("/new/pool/", {"name": "No Good", "models": "llama", "replicas": "2"})
    assert (bad.status_code, "metadata.name" in text_of(bad)) == (422, True)
    assert [row.version for row in InferencePool.objects.all()] == [before]


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize(
    "path",
    [
        "/new/pool/",
        "/pools/edge/delete/",
        "/pools/edge/config/",
        "/pools/edge/publish/",
        "/pools/edge/rollout/roll-back/",
        "/new/tenant/",
    ],
)
def test_viewers_see_no_buttons_and_are_refused_by_the_services(path: str) -> None:
    client = person(Role.VIEWER)
    pages = "".join(text_of(client.get(page)) for page in ("/pools/", "/pools/edge/", "/pools/edge/config/"))
    assert not re.search(r"New pool|>Delete<|Save as a new revision|Publish<", pages)
    said = {
        "name": "other",
        "models": "llama",
        "replicas": "2",
        "typed": "edge",
        "text": config_text(9),
        "comment": "why",
        "version": "1",
        "do": "save",
    }
    assert client.post(path, said).status_code == 403
    assert (InferencePool.objects.count(), Tenant.objects.count(), ConfigRevision.objects.count()) == (
        1,
        0,
        1,
    )


def test_a_tenant_gets_a_key_that_is_shown_once_and_revoked() -> None:
    client = person(Role.OPERATOR)
    made = client.post("/new/tenant/", {"name": "acme", "requests_per_minute": "60"})
    assert made["Location"] == "/tenants/acme/"
    assert Tenant.objects.get(name="acme").spec["limits"] == {"requestsPerMinute": 60}
    answer: HttpResponse = client.post("/tenants/acme/", {"name": "app"})
    keys = re.findall(r"sk-pm-[A-Za-z0-9_-]{40,}", text_of(answer))
    assert (len(keys), answer["Cache-Control"]) == (1, "no-store")
    assert keys[0] not in text_of(client.get("/tenants/acme/"))
    other = client.post("/tenants/none/keys/app/revoke/")
    assert (other.status_code, VirtualKey.objects.get(name="app").spec.get("revoked_at")) == (404, None)
    assert client.post("/tenants/acme/keys/app/revoke/").status_code == 302
    assert "Revoked" in text_of(client.get("/tenants/acme/"))


@pytest.mark.parametrize("path", ["/", "/pools/", "/tenants/"])
def test_lists_ask_the_database_as_often_for_many_rows_as_for_one(path: str) -> None:
    client = person(Role.VIEWER)
    counts = []
    for number in range(2):
        for row in range(5):
            create_simulated(ADMIN, f"pool-{number}-{row}", ["llama"], 1)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            client.get(path)
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 14


def test_a_page_that_is_not_there_is_a_page_and_an_address_of_the_api_is_data() -> None:
    client = person(Role.VIEWER)
    assert client.get("/pools/none/").status_code == 404
    assert "text/html" in Client().get("/nowhere/")["Content-Type"]
    assert Client().get("/api/v1/nowhere")["Content-Type"] == "application/json"
