"""Tokens of local pickers: one per pool, for its stream alone, as long as the pool is there."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.core import tokens as service
from controlplane.core import users
from controlplane.core.errors import InvalidError
from controlplane.core.models import ApiToken, AuditEntry, User
from controlplane.core.roles import Actor, Binding, BoundTo, Channel, Role
from controlplane.fleet.local.tokens import USER, YOUNG, renew
from controlplane.xds.admission import refusal
from controlplane.xds.nodes import NodeKind
from dataplane.xds.messages import Node
from tests.support.controlplane import ADMIN

pytestmark = pytest.mark.django_db


def whose(text: str) -> Actor | None:
    found = service.recognise(text, Channel.AUTOMATION)
    return None if found is None else found[1]


def age(pool: str) -> None:
    """Nobody has made the pool's token just now."""
    ApiToken.objects.filter(name=pool).update(created_at=timezone.now() - YOUNG - timedelta(seconds=1))


def test_each_pool_gets_one_that_opens_its_stream_alone_and_keeps_it() -> None:
    first = renew({"a": "", "b": ""})
    actor = whose(first["a"])
    assert actor is not None
    assert (actor.name, actor.role, actor.binding) == (USER, Role.WORKER, Binding(BoundTo.POOL, "a", "a"))
    assert refusal(actor, Node("a", "a"), NodeKind.PICKER) == ""
    assert refusal(actor, Node("b", "b"), NodeKind.PICKER) != ""
    assert refusal(actor, Node("x", "a"), NodeKind.PICKER) != ""
    assert refusal(actor, Node("a", "a"), NodeKind.GATEWAY) != ""
    entries = AuditEntry.objects.count()
    assert renew(first) == first
    assert (AuditEntry.objects.count(), ApiToken.objects.count()) == (entries, 2)


def test_that_of_a_pool_that_is_gone_opens_nothing_any_more() -> None:
    first = renew({"a": "", "b": ""})
    other = service.issue(ADMIN, users.put(ADMIN, "others", Role.WORKER), "a").text
    assert renew({"b": first["b"]}) == {"b": first["b"]}
    assert whose(first["a"]) is None
    assert whose(other) is not None, "it is somebody else's"
    again = renew({"a": first["a"], "b": first["b"]})
    assert (again["b"], again["a"] != first["a"]) == (first["b"], True)


@pytest.mark.parametrize("loss", ["revoked", "lost", "over"])
def test_one_that_does_not_hold_is_replaced(loss: str) -> None:
    first = renew({"a": ""})
    held = dict(first)
    if loss == "revoked":
        service.revoke(ADMIN, User.objects.get(username=USER), "a")
    elif loss == "lost":
        held = {"a": ""}
    else:
        ApiToken.objects.update(expires_at=timezone.now())
    if loss != "revoked":
        assert renew(held) == {pool: text for pool, text in held.items() if text}, "it is made just now"
        age("a")
    second = renew(held)
    assert second["a"] != first["a"]
    assert (whose(first["a"]), whose(second["a"]) is not None) == (None, True)


def test_while_their_user_is_locked_none_is_made_and_pools_keep_what_they_have() -> None:
    first = renew({"a": ""})
    User.objects.filter(username=USER).update(is_active=False)
    assert renew({"a": first["a"], "b": ""}) == first
    assert whose(first["a"]) is None
    assert ApiToken.objects.count() == 1


def test_a_person_of_that_name_is_left_alone() -> None:
    users.put(ADMIN, USER, Role.VIEWER)
    with pytest.raises(InvalidError, match="is for tokens of workers; fleet-pickers is viewer"):
        renew({"a": ""})
    assert (User.objects.get(username=USER).role, ApiToken.objects.count()) == (Role.VIEWER, 0)


def test_many_pools_cost_as_few_queries_as_one_while_nothing_changes() -> None:
    held = renew({f"p{number}": "" for number in range(20)})
    with CaptureQueriesContext(connection) as captured:
        assert renew(held) == held
    assert len(captured) == 2
