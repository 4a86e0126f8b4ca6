"""Logging in: how long guesses last, whom they keep out, and how that ends."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client, RequestFactory
from django.utils import timezone

from controlplane import environment
from controlplane.core import clients, passwords, throttle, users
from controlplane.core.models import LoginFailure
from controlplane.core.roles import Role
from controlplane.core.throttle import Source
from dataplane.errors import ConfigError

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def ann() -> None:
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)


def try_in(
    client: Client, password: str = "wrong", name: str = "ann", address: str = HERE, **more: str
) -> Any:
    return client.post(
        "/login/", {"username": name, "password": password}, REMOTE_ADDR=address, headers=more or None
    )


def is_in(client: Client) -> bool:
    return client.get("/").status_code == 200


def fail(name: str, source: Source, times: int) -> None:
    now = timezone.now()
    LoginFailure.objects.bulk_create(
        LoginFailure(username=name, source=source.name, at=now) for _ in range(times)
    )


@pytest.mark.usefixtures("ann")
def test_a_name_waits_at_one_address_even_with_the_right_password_and_goes_on_after_the_window() -> None:
    client = Client()
    for _ in range(throttle.MAX_OF_NAME_AND_SOURCE):
        assert "correct username" in try_in(client, name="Ann").content.decode()
    for _ in range(3):
        held = try_in(client, PASSWORD)
        assert "Too many logins have failed" in held.content.decode()
    assert (is_in(client), LoginFailure.objects.count()) == (False, throttle.MAX_OF_NAME_AND_SOURCE)
    LoginFailure.objects.update(at=timezone.now() - throttle.WINDOW)
    try_in(client, PASSWORD)
    assert (is_in(client), LoginFailure.objects.count()) == (True, 0)


@pytest.mark.usefixtures("ann")
def test_guesses_from_one_address_keep_nobody_out_elsewhere() -> None:
    fail("ann", Source(ELSEWHERE), throttle.MAX_OF_NAME_AND_SOURCE)
    client = Client()
    try_in(client, PASSWORD)
    assert is_in(client)
    assert LoginFailure.objects.count() == throttle.MAX_OF_NAME_AND_SOURCE


@pytest.mark.usefixtures("ann")
def test_a_browser_that_was_logged_in_before_is_not_kept_out_by_others_guesses() -> None:
    known = Client()
    try_in(known, PASSWORD)
    cookie = known.cookies["pointsman-known"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", 180 * 24 * 3600)
    known.post("/logout/")
    fail("ann", Source(HERE), throttle.MAX_OF_SOURCE)
    fail("ann", Source(ELSEWHERE), throttle.MAX_OF_NAME)
    fresh = Client()
    try_in(fresh, PASSWORD, address="192.0.2.3")
    try_in(known, PASSWORD)
    assert (is_in(fresh), is_in(known)) == (False, True)


@pytest.mark.usefixtures("ann")
def test_a_known_browser_guesses_no_more_than_others_and_nothing_of_other_people() -> None:
    users.put(users.SYSTEM, "bob", Role.ADMIN)
    passwords.put(users.SYSTEM, "bob", PASSWORD)
    known = Client()
    try_in(known, PASSWORD)
    known.post("/logout/")
    for _ in range(throttle.MAX_OF_NAME_AND_SOURCE):
        try_in(known)
    try_in(known, PASSWORD)
    assert not is_in(known)
    fail("bob", Source(ELSEWHERE), throttle.MAX_OF_NAME)
    try_in(known, PASSWORD, name="bob")
    assert not is_in(known)


@pytest.mark.parametrize("mark", ["", "none", "a:b:c", "WyJhbm4iLCJ4Il0:1abcde:forged"])
def test_a_mark_that_is_not_ours_makes_no_browser_known(mark: str) -> None:
    assert throttle.source_of("ann", HERE, mark) == Source(HERE)


def test_a_mark_holds_for_its_owner_and_for_half_a_year(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = throttle.mark_of("ann", Source(HERE))
    known = throttle.source_of("ANN", HERE, mark)
    assert known.is_known
    assert throttle.source_of("ann", HERE, throttle.mark_of("ann", known)) == known
    assert throttle.source_of("bob", HERE, mark) == Source(HERE)
    monkeypatch.setattr(throttle, "KNOWN_FOR", timedelta(seconds=-1))
    assert throttle.source_of("ann", HERE, mark) == Source(HERE)


def test_an_address_waits_after_many_failures_of_any_names() -> None:
    source = Source(HERE)
    for number in range(throttle.MAX_OF_SOURCE):
        assert throttle.begin(f"name-{number}", source)
    assert not throttle.begin("another", source)
    assert throttle.begin("another", Source(ELSEWHERE))


@pytest.mark.usefixtures("ann")
@pytest.mark.parametrize("way", ["password", "unlock"])
def test_a_new_password_or_the_command_ends_the_wait_of_a_name(way: str) -> None:
    fail("ann", Source(HERE), throttle.MAX_OF_NAME_AND_SOURCE)
    fail("bob", Source(ELSEWHERE), 1)
    if way == "password":
        passwords.put(users.SYSTEM, "ann", f"{PASSWORD} staple")
    else:
        assert throttle.release("Ann") == throttle.MAX_OF_NAME_AND_SOURCE
    assert throttle.begin("ann", Source(HERE))
    assert LoginFailure.objects.filter(username="bob").count() == 1


def test_of_too_many_failures_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_ROWS", 3)
    for number in range(5):
        throttle.begin(f"name-{number}", Source(HERE))
    kept = LoginFailure.objects.order_by("pk").values_list("username", flat=True)
    assert list(kept) == ["name-2", "name-3", "name-4"]


def test_names_that_grow_in_lower_case_are_stored() -> None:
    assert throttle.begin("\u0390" * 253, Source(HERE))


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="threads share no database in memory")
def test_of_logins_at_once_no_more_get_through_than_of_those_after_one_another() -> None:
    def one(_: int) -> bool:
        try:
            return throttle.begin("ann", Source(HERE))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        through = sum(pool.map(one, range(60)))
    assert through <= throttle.MAX_OF_NAME_AND_SOURCE
    assert LoginFailure.objects.count() == through


def test_a_count_that_comes_between_writing_and_looking_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    create = LoginFailure.objects.create

    def overtaken(**said: Any) -> LoginFailure:
        fail("ann", Source(HERE), throttle.MAX_OF_NAME_AND_SOURCE)
        return create(**said)

    monkeypatch.setattr(LoginFailure.objects, "create", overtaken)
    assert not throttle.begin("ann", Source(HERE))
    assert LoginFailure.objects.count() == throttle.MAX_OF_NAME_AND_SOURCE


@pytest.mark.usefixtures("ann")
def test_the_old_password_is_guessed_no_more_often_at_the_form_that_changes_it() -> None:
    client = Client()
    try_in(client, PASSWORD)
    said = {"old": "wrong", "new": f"{PASSWORD} staple", "again": f"{PASSWORD} staple"}
    for _ in range(throttle.MAX_OF_NAME_AND_SOURCE):
        assert "not your password" in client.post("/password/", said).content.decode()
    held = client.post("/password/", {**said, "old": PASSWORD})
    assert re.search("Too many logins have failed", held.content.decode())
    assert try_in(Client(), PASSWORD, address=ELSEWHERE).status_code == 302


@pytest.mark.usefixtures("ann")
def test_what_clients_say_of_their_address_counts_for_nothing_without_trusted_proxies() -> None:
    client = Client()
    for number in range(throttle.MAX_OF_NAME_AND_SOURCE):
        try_in(client, **{"X-Forwarded-For": f"203.0.113.{number}"})
    assert set(LoginFailure.objects.values_list("source", flat=True)) == {HERE}
    try_in(client, PASSWORD, **{"X-Forwarded-For": "203.0.113.99"})
    assert not is_in(client)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "203.0.113.9", HERE),
        (1, "", HERE),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "198.51.100.7, 203.0.113.9", "203.0.113.9"),
        (2, "forged, 198.51.100.7:443 ,203.0.113.9", "198.51.100.7"),
        (2, "203.0.113.9", "203.0.113.9"),
        (1, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (1, "[2001:db8:1:2:9::]:443", "2001:db8:1:2::/64"),
        (1, "::ffff:203.0.113.9", "203.0.113.9"),
        (1, "nobody", "unknown"),
    ],
)
def test_as_many_entries_are_believed_as_there_are_proxies(
    settings: Any, proxies: int, forwarded: str, address: str
) -> None:
    settings.TRUSTED_PROXIES = proxies
    headers = {"X-Forwarded-For": forwarded} if forwarded else None
    request = RequestFactory().get("/", REMOTE_ADDR=HERE, headers=headers)
    assert clients.address_of(request) == address


@pytest.mark.parametrize("text", ["-1", "17", "two", "1.5", "²"])
def test_a_number_of_proxies_that_is_none_ends_the_start(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("POINTSMAN_TRUSTED_PROXIES", text)
    with pytest.raises(ConfigError, match=r"POINTSMAN_TRUSTED_PROXIES.*from 0 to 16"):
        environment.trusted_proxies()
