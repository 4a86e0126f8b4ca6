"""Who may do what, for every route there is: a route that is not in the table fails here.

A request goes to an object that exists and says all it must, so that what refuses it is the role alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.test import APIClient

from controlplane.core.kinds import KINDS
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.fleet.models import InferencePool
from tests.support.controlplane import EXAMPLES, client, everything_is_there

pytestmark = pytest.mark.django_db

PEOPLE: Final = {Role.VIEWER, Role.OPERATOR, Role.ADMIN}
CHANGERS: Final = {Role.OPERATOR, Role.ADMIN}
ADMINS: Final = {Role.ADMIN}
FOLLOWERS: Final = {Role.WORKER, Role.ADMIN}
EVERYBODY: Final = set(Role)
PREFIX: Final = "api/v1/"

KINDS_TABLE: Final = {
    f"{service.plural}{suffix}": may
    for service in KINDS.all()
    for suffix, may in {
        "-list": {"get": PEOPLE, "post": CHANGERS},
        "-one": {"get": PEOPLE, "put": CHANGERS, "delete": CHANGERS},
    }.items()
}
CONFIGS_TABLE: Final = {
    f"{plural}-{suffix}": may
    for plural in ("endpointpickerconfigs", "payloadprocessorconfigs", "guardrailpolicies")
    for suffix, may in {
        "validate": {"post": PEOPLE},
        **{
            name: {"get": PEOPLE} for name in ("plan", "revisions", "revision", "diff", "rollouts", "rollout")
        },
        **{name: {"post": CHANGERS} for name in ("publish", "promote", "halt", "rollback")},
    }.items()
}
TABLE: Final[dict[str, dict[str, set[Role]]]] = {
    **KINDS_TABLE,
    **CONFIGS_TABLE,
    "workers-list": {"get": PEOPLE},
    "workers-one": {"get": PEOPLE},
    "apply": {"post": CHANGERS},
    "export": {"get": PEOPLE},
    "audit": {"get": CHANGERS},
    "whoami": {"get": EVERYBODY},
    "schema": {"get": EVERYBODY},
    "users-list": {"get": ADMINS, "post": ADMINS},
    "users-one": {"get": ADMINS, "patch": ADMINS},
    "users-password": {"post": ADMINS},
    "users-tokens-list": {"get": ADMINS, "post": ADMINS},
    "users-token": {"delete": ADMINS},
    "pools-status": {"get": PEOPLE},
    "pools-endpoints": {"get": PEOPLE},
    "virtualkeys-rotate": {"post": CHANGERS},
    "virtualkeys-revoke": {"post": CHANGERS},
    "virtualkeyuses": {"post": FOLLOWERS},
    "guardrails-test": {"post": PEOPLE},
    "guardrails-verdicts": {"get": PEOPLE},
    "telemetry-pools": {"get": PEOPLE},
    "telemetry-pool": {"get": PEOPLE},
    "telemetry-processors": {"get": PEOPLE},
    "telemetry-processor": {"get": PEOPLE},
    "usage-records": {"get": PEOPLE},
    "usage-hourly": {"get": PEOPLE},
    "usage-daily": {"get": PEOPLE},
    "usage-dead-letters": {"get": PEOPLE},
}
"""Name of a route -> method -> the roles that may. Anonymous callers may nothing."""

BODIES: Final[dict[str, Any]] = {
    "apply": [],
    "users-list": {"name": "another"},
    "users-tokens-list": {"name": "another"},
    "virtualkeyuses": {"uses": []},
    "guardrails-test": {"trial": {"text": "hello"}},
}
QUERIES: Final = {
    "endpointpickerconfigs-diff": "?from=1&to=1",
    "payloadprocessorconfigs-diff": "?from=1&to=1",
    "guardrailpolicies-diff": "?from=1&to=1",
}
METHODS: Final = ("get", "post", "put", "patch", "delete")


def routes(resolver: Any = None, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Every address of the API and its route."""
    for pattern in (resolver or get_resolver()).url_patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern, address)
        elif address.startswith(PREFIX):
            yield address, pattern


ROUTES: Final = {str(pattern.name): (address, pattern) for address, pattern in routes()}


def methods(pattern: URLPattern) -> set[str]:
    view: Any = pattern.callback
    return {method for method in METHODS if hasattr(view.view_class, method)}


def kind_of(address: str) -> str:
    plural = address.removeprefix(PREFIX).partition("/")[0]
    return next((service.kind for service in KINDS.all() if service.plural == plural), "")


def ask(api: APIClient, name: str, method: str) -> Any:
    """Send a request that is good but for who sends it."""
    address = ROUTES[name][0]
    document = EXAMPLES.get(kind_of(address), {"metadata": {"name": "known"}})
    where = "/" + address.replace("<str:name>", document["metadata"]["name"])
    where = where.replace("<str:token>", "known").replace("<int:number>", "1") + QUERIES.get(name, "")
    if method == "get":
        return api.get(where)
    is_document = name in KINDS_TABLE or name.endswith("-validate")
    body = document if is_document and method != "delete" else BODIES.get(name, {})
    return getattr(api, method)(where, body, format="json", HTTP_IF_MATCH='"1"')


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """What tests change is undone before the next."""
    with django_db_blocker.unblock(), everything_is_there():
        yield


def test_every_route_is_in_the_table_with_its_methods() -> None:
    assert {name: set(may) for name, may in TABLE.items()} == {
        name: methods(pattern) for name, (_, pattern) in ROUTES.items()
    }
    assert sum(1 for _ in routes()) == len(ROUTES)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("name", TABLE)
def test_a_role_may_do_what_the_table_says_and_is_refused_the_rest(role: Role, name: str) -> None:
    api = client(role)
    for method, may in TABLE[name].items():
        before = AuditEntry.objects.count(), InferencePool.objects.count()
        answer = ask(api, name, method)
        is_refused = answer.status_code == 403
        if name == "apply" and role not in may:
            continue  # an empty set needs no role; sets are tried in test_api.py
        assert is_refused == (role not in may), (method, answer.content)
        assert answer.status_code not in {401, 405, 428, 500}
        if is_refused:
            assert (AuditEntry.objects.count(), InferencePool.objects.count()) == before


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("name", TABLE)
def test_without_a_token_every_route_refuses(name: str) -> None:
    before = AuditEntry.objects.count()
    for method in METHODS:
        assert ask(APIClient(), name, method).status_code == 401
    assert AuditEntry.objects.count() == before


PAGES: Final = ("-list", "-revisions", "-rollouts")
LISTS: Final = sorted(
    name
    for name in TABLE
    if name.endswith(PAGES)
    or name.startswith("usage-")
    or name in {"audit", "telemetry-pools", "telemetry-processors"}
)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("name", LISTS)
def test_a_list_stays_within_its_budget_of_queries(name: str) -> None:
    api = client()
    ask(api, name, "get")  # notes the token's use
    with CaptureQueriesContext(connection) as captured:
        assert ask(api, name, "get").status_code in {200, 503}
    assert len(captured) <= 4, [query["sql"] for query in captured]
