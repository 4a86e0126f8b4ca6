"""Passwords of people: judged, hashed, audited without themselves."""

from __future__ import annotations

import pytest

from controlplane.core import passwords, users
from controlplane.core.errors import ForbiddenError, InvalidError
from controlplane.core.models import AuditEntry, User
from controlplane.core.roles import Role
from tests.support.controlplane import ADMIN, OPERATOR

pytestmark = pytest.mark.django_db


def test_a_drawn_password_is_the_users_and_only_its_hash_is_kept() -> None:
    users.put(ADMIN, "ada", Role.OPERATOR)
    password = passwords.draw(ADMIN, "ada")
    user = User.objects.get(username="ada")
    assert len(password) == 20
    assert user.check_password(password)
    assert password not in user.password
    entry = AuditEntry.objects.first()
    assert entry is not None
    assert (entry.action, entry.kind, entry.name) == ("set-password", "User", "ada")
    assert entry.after == {"name": "ada", "role": "operator", "active": True}


def test_the_last_password_counts() -> None:
    users.put(ADMIN, "ada", Role.VIEWER)
    first = passwords.draw(ADMIN, "ada")
    passwords.put(ADMIN, "ada", "where does this train go")
    user = User.objects.get(username="ada")
    assert (user.check_password(first), user.check_password("where does this train go")) == (False, True)


@pytest.mark.parametrize(
    ("password", "problems"),
    [
        ("short-one-1", ["This password is too short. It must contain at least 12 characters."]),
        ("918273645546", ["This password is entirely numeric."]),
        ("x" * 1001, ["This password is longer than 1000 characters."]),
    ],
)
def test_a_weak_password_is_refused_and_changes_nothing(password: str, problems: list[str]) -> None:
    users.put(ADMIN, "ada", Role.VIEWER)
    before = User.objects.get(username="ada").password
    with pytest.raises(InvalidError) as refused:
        passwords.put(ADMIN, "ada", password)
    assert [(detail.path, detail.message) for detail in refused.value.details] == [
        ("password", problem) for problem in problems
    ]
    assert User.objects.get(username="ada").password == before


def test_workers_and_strangers_have_no_password() -> None:
    users.put(ADMIN, "picker", Role.WORKER)
    for name, problem in (("picker", "workers do not log in"), ("nobody", "there is no user nobody")):
        with pytest.raises(InvalidError, match=problem):
            passwords.draw(ADMIN, name)


def test_only_administrators_give_passwords() -> None:
    users.put(ADMIN, "ada", Role.VIEWER)
    with pytest.raises(ForbiddenError):
        passwords.draw(OPERATOR, "ada")
