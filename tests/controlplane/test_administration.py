"""Django's admin: the services' rules hold, the audit log tells, and nothing secret is shown."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.administration import site
from controlplane.configs.models import ConfigRevision
from controlplane.core import passwords, tokens, users
from controlplane.core.documents import apply
from controlplane.core.kinds import KINDS
from controlplane.core.models import ApiToken, AuditEntry, LoginFailure, User
from controlplane.core.roles import Role
from controlplane.objectives.models import InferenceObjective
from controlplane.providers.models import ProviderCredential
from controlplane.tenancy.models import Tenant, VirtualKey
from tests.support.controlplane import ADMIN, CREDENTIAL, EXAMPLES, TENANT, VIRTUAL_KEY, objective, prepare

pytestmark = pytest.mark.django_db

OBJECTIVES = "/admin/objectives/inferenceobjective/"
USERS = "/admin/core/user/"
PAGES = ["/admin/", OBJECTIVES, f"{OBJECTIVES}add/", USERS, "/admin/core/auditentry/"]


def person(role: Role = Role.ADMIN) -> Client:
    """A browser in which somebody of this role is logged in."""
    client = Client()
    client.force_login(users.put(users.SYSTEM, f"the-{role}", role))
    return client


def text_of(answer: Any) -> str:
    found: str = answer.content.decode()
    return found


def field(page: Any, name: str) -> str:
    """What a field of the form says."""
    found: str = page.context["adminform"].form[name].value()
    return found


def errors(answer: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = answer.context["adminform"].form.errors
    return found


def last() -> AuditEntry:
    found = AuditEntry.objects.first()
    assert found is not None
    return found


def made() -> InferenceObjective:
    apply(ADMIN, [objective()])
    return InferenceObjective.objects.get()


@pytest.mark.parametrize("role", [Role.WORKER, Role.VIEWER, Role.OPERATOR])
@pytest.mark.parametrize("path", PAGES)
def test_only_administrators_see_it(role: Role, path: str) -> None:
    others = person(role)
    refused = others.get(path)
    assert refused.status_code == 403
    assert "for administrators" in text_of(refused)
    assert others.post(path, {"document": yaml.safe_dump(objective())}).status_code == 403
    assert InferenceObjective.objects.count() == 0
    assert person().get(path).status_code == 200


def test_being_staff_or_a_superuser_to_django_opens_nothing() -> None:
    client = person(Role.OPERATOR)
    User.objects.update(is_staff=True, is_superuser=True)
    assert client.get("/admin/").status_code == 403


@pytest.mark.parametrize("path", ["/admin/", OBJECTIVES, f"{OBJECTIVES}1/change/"])
def test_strangers_are_asked_to_log_in_at_the_console(path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={path}")
    assert Client().get("/admin/login/")["Location"] == "/login/"
    assert person().get("/admin/password_change/")["Location"] == "/password/"


def test_a_change_goes_through_the_service_and_is_audited_with_before_and_after() -> None:
    row, client = made(), person()
    page = client.get(f"{OBJECTIVES}{row.pk}/change/")
    assert yaml.safe_load(field(page, "document")) == objective()
    said = {"document": yaml.safe_dump(objective(priority=7)), "version": field(page, "version")}
    answer = client.post(f"{OBJECTIVES}{row.pk}/change/", said)
    assert (answer.status_code, answer["Location"]) == (302, OBJECTIVES)
    row.refresh_from_db()
    assert (row.priority, row.version) == (7, 2)
    entry = last()
    assert (entry.actor, entry.channel, entry.action, entry.kind, entry.name) == (
        *("the-admin", "admin", "update"),
        *("InferenceObjective", "interactive"),
    )
    assert (entry.before, entry.after) == (objective(version=1), objective(version=2, priority=7))
    assert entry.request_id == answer["X-Request-ID"]
    assert LogEntry.objects.count() == 0
    history = client.get(f"{OBJECTIVES}{row.pk}/history/")
    assert history["Location"] == "/audit/?kind=InferenceObjective&name=interactive"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (yaml.safe_dump(objective(priority="high")), "spec.priority: "),
        (yaml.safe_dump(objective(wieght=3)), "spec.wieght"),
        (yaml.safe_dump(objective("another")), "metadata.name: is not interactive; names stay"),
        ("a: [", "line 1"),
        ("- 1", "must be one document"),
        ("a: 1\na: 2", "a"),
        ("", "This field is required."),
    ],
)
def test_what_is_wrong_is_an_error_of_the_form_and_changes_nothing(text: str, problem: str) -> None:
    row, client = made(), person()
    entries = AuditEntry.objects.count()
    answer = client.post(f"{OBJECTIVES}{row.pk}/change/", {"document": text, "version": "1"})
    assert answer.status_code == 200
    assert problem in errors(answer)["document"][0]
    assert field(answer, "document") == text
    row.refresh_from_db()
    assert (row.priority, row.version, AuditEntry.objects.count()) == (10, 1, entries)


@pytest.mark.parametrize(
    ("version", "problem"),
    [("1", "is at version 2, and the change is meant for version 1"), ("", "does not say which version")],
)
def test_a_change_meant_for_another_version_is_refused(version: str, problem: str) -> None:
    row, client = made(), person()
    apply(ADMIN, [objective(priority=5)])
    said = {"document": yaml.safe_dump(objective(priority=7)), "version": version}
    answer = client.post(f"{OBJECTIVES}{row.pk}/change/", said)
    assert problem in errors(answer)["document"][0]
    assert InferenceObjective.objects.get().priority == 5


@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_every_kind_is_made_shown_and_deleted_there(kind: str) -> None:
    prepare(kind)
    service, client = KINDS.of(kind), person()
    assert service is not None
    url = f"/admin/{service.model._meta.app_label}/{service.model._meta.model_name}/"
    empty = yaml.safe_load(field(client.get(f"{url}add/"), "document"))
    assert (empty["kind"], empty["apiVersion"]) == (kind, service.versions[0])
    document = copy.deepcopy(EXAMPLES[kind])
    answer = client.post(f"{url}add/", {"document": yaml.safe_dump(document)})
    assert answer.status_code == 302, errors(answer)
    row = service.model.objects.get(name=document["metadata"]["name"])
    assert (last().action, last().channel) == ("create", "admin")
    page = client.get(f"{url}{row.pk}/change/")
    again = {"document": field(page, "document"), "version": field(page, "version")}
    assert client.post(f"{url}{row.pk}/change/", again).status_code == 302
    assert service.model.objects.get(pk=row.pk).version == row.version
    assert document["metadata"]["name"] in text_of(client.get(f"{url}?q={document['metadata']['name']}"))
    asked = client.get(f"{url}{row.pk}/delete/")
    assert f'name="version" value="{row.version}"' in text_of(asked)
    assert client.post(f"{url}{row.pk}/delete/", {"post": "yes", "version": row.version}).status_code == 302
    assert not service.model.objects.filter(pk=row.pk).exists()
    assert (last().action, last().channel, last().after) == ("delete", "admin", None)


def test_a_name_that_is_taken_is_refused() -> None:
    made()
    answer = person().post(f"{OBJECTIVES}add/", {"document": yaml.safe_dump(objective(priority=3))})
    assert errors(answer)["document"] == ["InferenceObjective interactive exists already"]
    assert InferenceObjective.objects.get().priority == 10


@pytest.mark.parametrize(
    ("version", "problem"),
    [("1", "is named by"), ("7", "is meant for version 7"), ("", "does not say which version")],
)
def test_what_others_name_or_have_changed_is_not_deleted(version: str, problem: str) -> None:
    apply(ADMIN, [TENANT, {**VIRTUAL_KEY, "spec": {"tenant": "research", "keyDigest": "0" * 64}}])
    row, client = Tenant.objects.get(), person()
    url = f"/admin/tenancy/tenant/{row.pk}/"
    answer = client.post(f"{url}delete/", {"post": "yes", "version": version})
    assert (answer.status_code, answer["Location"]) == (302, f"{url}change/")
    told = re.search(r'<li class="error">(.*?)</li>', text_of(client.get(f"{url}change/")))
    assert told is not None
    assert problem in told[1]
    assert (Tenant.objects.count(), last().action) != (0, "delete")


def test_keys_are_not_made_where_they_would_not_be_shown() -> None:
    apply(ADMIN, [TENANT])
    answer = person().post("/admin/tenancy/virtualkey/add/", {"document": yaml.safe_dump(VIRTUAL_KEY)})
    assert "spec.keyDigest: is required" in errors(answer)["document"][0]
    assert VirtualKey.objects.count() == 0
    assert person().get("/admin/core/apitoken/add/").status_code == 403


def test_people_are_let_in_changed_and_shut_out_by_the_service() -> None:
    client = person()
    new = {"username": "ann", "role": "operator", "active": "on"}
    assert client.post(f"{USERS}add/", new).status_code == 302
    ann = User.objects.get(username="ann")
    assert (ann.role, ann.is_active, ann.has_usable_password()) == ("operator", True, False)
    said = {"username": "eve", "role": "viewer", "version": str(ann.version)}
    assert client.post(f"{USERS}{ann.pk}/change/", said).status_code == 302
    ann.refresh_from_db()
    assert (ann.username, ann.role, ann.is_active) == ("ann", "viewer", False)
    assert (last().before, last().after) == (
        {"name": "ann", "role": "operator", "active": True},
        {"name": "ann", "role": "viewer", "active": False},
    )
    stale = client.post(f"{USERS}{ann.pk}/change/", {**said, "role": "admin"})
    assert "is meant for version" in errors(stale)["__all__"][0]
    assert client.post(f"{USERS}{ann.pk}/delete/", {"post": "yes"}).status_code == 403
    assert "there is a User ann already" in str(
        errors(client.post(f"{USERS}add/", {"username": "ann", "role": "admin"}))
    )
    ann.refresh_from_db()
    assert ann.role == "viewer"


def test_the_last_administrator_stays_one() -> None:
    client = person()
    User.objects.exclude(username="the-admin").delete()
    row = User.objects.get(username="the-admin")
    said = {"role": "viewer", "active": "on", "version": row.version}
    answer = client.post(f"{USERS}{row.pk}/change/", said)
    assert "last administrator" in errors(answer)["__all__"][0]
    row.refresh_from_db()
    assert row.role == Role.ADMIN


def test_a_token_is_taken_back_there() -> None:
    ann = users.put(users.SYSTEM, "ann", Role.VIEWER)
    issued = tokens.issue(users.SYSTEM, ann, "laptop")
    client = person()
    url = f"/admin/core/apitoken/{issued.row.pk}/"
    assert client.post(f"{url}change/", {"name": "other"}).status_code == 403
    assert client.post(f"{url}delete/", {"post": "yes"}).status_code == 302
    assert ApiToken.objects.count() == 0
    assert (last().action, last().kind, last().name, last().channel) == (
        *("delete", "ApiToken", "ann/laptop"),
        "admin",
    )


def test_nothing_secret_is_on_any_page() -> None:
    client = person()
    ann = users.put(users.SYSTEM, "ann", Role.VIEWER)
    passwords.put(users.SYSTEM, "ann", "correct horse battery")
    issued = tokens.issue(users.SYSTEM, ann, "laptop")
    secret = {**CREDENTIAL, "spec": {"type": "APIKey", "secret": "sk-hidden"}}
    answer = client.post("/admin/providers/providercredential/add/", {"document": yaml.safe_dump(secret)})
    assert answer.status_code == 302
    ann.refresh_from_db()
    credential = ProviderCredential.objects.get()
    pages = [
        text_of(client.get(f"/admin/{path}"))
        for path in (
            *("core/user/", f"core/user/{ann.pk}/change/"),
            *("core/apitoken/", f"core/apitoken/{issued.row.pk}/change/"),
            *("providers/providercredential/", f"providers/providercredential/{credential.pk}/change/"),
            *("core/auditentry/", f"core/auditentry/{last().pk}/change/"),
        )
    ]
    wrong = {**CREDENTIAL, "spec": {"type": "APIKey", "secret": "sk-hidden", "expires": 1}}
    refused = client.post(
        f"/admin/providers/providercredential/{credential.pk}/change/",
        {"document": yaml.safe_dump(wrong), "version": "1"},
    )
    assert yaml.safe_load(field(refused, "document"))["spec"] == {"type": "APIKey", "expires": 1}
    assert field(refused, "version") == "1"
    pages.append(text_of(refused))
    hidden = [ann.password, issued.row.digest, issued.text, "sk-hidden", credential.secret]
    assert not [(text, page) for page in pages for text in hidden if text in page]
    assert "APIKey" in pages[5]


def test_records_are_shown_and_changed_by_nobody() -> None:
    made()
    apply(ADMIN, [EXAMPLES["EndpointPickerConfig"]])
    LoginFailure.objects.create(username="ann", source="192.0.2.1", at=timezone.now())
    client = person()
    for row in (last(), LoginFailure.objects.get(), ConfigRevision.objects.get()):
        url = f"/admin/{row._meta.app_label}/{row._meta.model_name}/"
        page = client.get(f"{url}{row.pk}/change/")
        assert (page.status_code, "View" in text_of(page)) == (200, True)
        assert not re.search(r'<(input|textarea)[^>]*name="(?!csrf)', text_of(page))
        assert client.post(f"{url}{row.pk}/change/", {"name": "x"}).status_code == 403
        assert client.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert client.get(f"{url}add/").status_code == 403
    assert (LoginFailure.objects.count(), ConfigRevision.objects.count()) == (1, 1)


def test_every_list_is_there_and_asks_as_often_for_many_rows_as_for_few() -> None:
    client = person()
    for model in site._registry:
        assert client.get(f"/admin/{model._meta.app_label}/{model._meta.model_name}/").status_code == 200
    counts = []
    for number in range(2):
        apply(ADMIN, [objective(f"row-{number}-{row}") for row in range(5)])
        with CaptureQueriesContext(connection) as captured:
            client.get(OBJECTIVES)
            client.get("/admin/core/auditentry/")
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 16


@pytest.mark.parametrize("path", PAGES)
def test_pages_hold_the_policy_of_the_console(path: str) -> None:
    made()
    page = person().get(path)
    assert "script-src 'self'" in page["Content-Security-Policy"]
    assert "no-store" in page["Cache-Control"]
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text_of(page))


def test_administrators_alone_find_it_in_the_menu() -> None:
    assert 'href="/admin/"' in text_of(person().get("/pools/"))
    assert 'href="/admin/"' not in text_of(person(Role.OPERATOR).get("/pools/"))
