"""Pages of verdicts: what they are asked, where they lead, what they say when nobody answers, and files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import redis

from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.policies import verdicts
from dataplane.verdicts import FIELD, STREAM, VerdictRecord
from tests.support.console import person, text_of
from tests.support.controlplane import ADMIN, GUARDRAILS

pytestmark = pytest.mark.django_db

DAY = 1_764_500_000_000
"""Milliseconds; 2025-11-30T10:53:20Z."""


@pytest.fixture
def bus(valkey: str, settings: Any) -> Iterator[redis.Redis]:
    """A Valkey server that the control plane reads."""
    settings.VALKEY_URL = valkey
    verdicts.counting.forget()
    with redis.Redis.from_url(valkey) as found:
        yield found
    verdicts.counting.forget()


def tell(bus: redis.Redis, identity: str, rule: str = "codenames", **fields: Any) -> None:
    said = {
        "at": 0.0,
        "processor": "edge",
        "policy": "baseline",
        "rule": rule,
        "type": "patterns",
        "kind": "pattern 0",
        "stage": "request",
        "action": "block",
        **fields,
    }
    bus.xadd(STREAM, {FIELD: msgspec.json.encode(VerdictRecord(**said))}, id=identity)


@pytest.fixture
def told(bus: redis.Redis) -> redis.Redis:
    """Three verdicts of two requests, and what is none."""
    tell(bus, f"{DAY}-0", tenant="acme", model="llama", pool="edge", request_id="r-1", start=2, end=9)
    tell(bus, f"{DAY + 60_000}-0", "mail", action="mask", kind="email", stage="stream", request_id="r-2")
    tell(bus, f"{DAY + 60_000}-1", policy="gone", request_id="r-2", path="messages[0].content")
    bus.xadd(STREAM, {FIELD: b"junk"}, id=f"{DAY + 60_001}-0")
    return bus


def ids(page: str) -> list[str]:
    return [each.removeprefix(str(DAY)[:5]) for each in re.findall(r'href="/verdicts/([0-9-]+)/"', page)]


def seen(query: str = "", **headers: str) -> str:
    return text_of(person(Role.VIEWER).get(f"/verdicts/{query}", headers=headers or None))


ONE, TWO, THREE = (str(each)[5:] for each in (f"{DAY}-0", f"{DAY + 60_000}-0", f"{DAY + 60_000}-1"))


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [THREE, TWO, ONE]),
        ("?policy=baseline", [TWO, ONE]),
        ("?rule=mail", [TWO]),
        ("?tenant=acme", [ONE]),
        ("?model=llama&pool=edge", [ONE]),
        ("?pool=other", []),
        ("?action=block", [THREE, ONE]),
        ("?stage=stream", [TWO]),
        ("?request_id=r-2", [THREE, TWO]),
        ("?since=2025-11-30T10:54", [THREE, TWO]),
        ("?until=2025-11-30T10:54", [ONE]),
        ("?since=1850-01-01T00:00", [THREE, TWO, ONE]),
    ],
)
def test_verdicts_are_told_newest_first_and_asked_by_their_fields(query: str, expected: list[str]) -> None:
    assert ids(seen(query)) == expected


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("query", ["?since=yesterday", "?action=burn", "?policy=" + "x" * 300])
def test_a_question_that_is_none_is_told_at_its_field(query: str) -> None:
    answer = person(Role.VIEWER).get(f"/verdicts/{query}")
    assert (answer.status_code, 'class="wrong"' in text_of(answer)) == (422, True)


def test_pages_lead_from_the_newest_to_the_oldest_and_back(
    bus: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.policies.pages.verdicts.PAGE", 2)
    for number in range(5):
        tell(bus, f"{DAY + number}-0", "even" if number % 2 == 0 else "odd")
    pages, query = [], ""
    for _ in range(3):
        page = seen(query)
        pages.append(ids(page))
        older = re.search(r'href="(\?[^"]*before=[^"]*)">Older', page)
        query = older[1].replace("&amp;", "&") if older else ""
    assert ([len(each) for each in pages], query) == ([2, 2, 1], "")
    newer = re.search(r'href="(\?after=[^"]*)">Newer', page)
    assert newer is not None
    assert ids(seen(newer[1])) == pages[1]
    assert 'hx-trigger="every 5s"' not in page
    assert 'hx-trigger="every 5s"' in seen()
    assert [len(ids(seen("?rule=odd"))), len(ids(seen("?rule=even")))] == [2, 2]


def test_a_search_that_finds_little_says_how_far_it_looked_and_goes_on(
    bus: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "LOOKED_AT", 3)
    monkeypatch.setattr(verdicts, "BATCH", 2)
    tell(bus, f"{DAY}-0", "rare")
    for number in range(1, 5):
        tell(bus, f"{DAY + number}-0")
    page = seen("?rule=rare")
    assert (ids(page), "looks further back" in page) == ([], True)
    older = re.search(r'href="(\?rule=rare&amp;before=[^"]*)">Older', page)
    assert older is not None
    assert len(ids(seen(older[1].replace("&amp;", "&")))) == 1


@pytest.mark.usefixtures("told")
def test_what_is_live_comes_without_the_page_around_it() -> None:
    part = seen("?policy=baseline", **{"HX-Request": "true"})
    assert (ids(part), "<html" in part, "<form" in part) == ([TWO, ONE], False, False)


@pytest.mark.usefixtures("told")
def test_one_verdict_leads_to_its_policy_and_to_its_request_and_never_shows_a_text() -> None:
    apply(ADMIN, [GUARDRAILS])
    client = person(Role.VIEWER)
    page = text_of(client.get(f"/verdicts/{DAY}-0/"))
    for link in ("/guardrails/baseline/", "/verdicts/?request_id=r-1"):
        assert f'href="{link}"' in page
    assert "characters 2 to 9" in page
    assert "2025-11-30 10:53:20" in page
    gone = text_of(client.get(f"/verdicts/{DAY + 60_000}-1/"))
    assert ("is here no more" in gone, 'href="/guardrails/gone/"' in gone) == (True, False)
    for none in (f"{DAY}-7", "nonsense", f"{DAY + 60_001}-0", "9" * 19 + "-0"):
        assert client.get(f"/verdicts/{none}/").status_code == 404
    policy = text_of(client.get("/guardrails/baseline/"))
    assert 'href="/verdicts/?policy=baseline"' in policy


def test_policies_show_how_often_they_fired_in_a_day(bus: redis.Redis) -> None:
    apply(ADMIN, [GUARDRAILS])
    tell(bus, "*")
    tell(bus, "*")
    tell(bus, "*", "personal-data", action="mask")
    client = person(Role.VIEWER)
    assert re.findall(r'class="count [^>]*>(.*?)</a>', text_of(client.get("/guardrails/"))) == [
        "2 block",
        "1 mask",
    ]
    page = text_of(client.get("/guardrails/baseline/"))
    assert re.findall(r'class="count [^>]*href="([^"]*)">(.*?)</a>', page)[2:] == [
        ("/verdicts/?policy=baseline&amp;action=mask&amp;rule=personal-data", "1 mask"),
        ("/verdicts/?policy=baseline&amp;action=block&amp;rule=codenames", "2 block"),
    ]


@pytest.mark.parametrize(
    ("url", "told"),
    [("", "Verdicts are not heard of here"), ("redis://127.0.0.1:1/0", "Valkey does not answer")],
)
def test_while_nobody_can_be_asked_pages_say_so(settings: Any, url: str, told: str) -> None:
    settings.VALKEY_URL = url
    verdicts.counting.forget()
    apply(ADMIN, [GUARDRAILS])
    client = person(Role.VIEWER)
    for path in ("/verdicts/", "/guardrails/", "/guardrails/baseline/"):
        answer = client.get(path)
        assert (answer.status_code, told in text_of(answer)) == (200, True), path
    for path in (f"/verdicts/{DAY}-0/", "/verdicts/export/"):
        assert client.get(path).status_code == 503
    verdicts.counting.forget()


@pytest.mark.usefixtures("told")
def test_a_file_holds_what_was_asked_for_and_no_formula(bus: redis.Redis) -> None:
    tell(bus, f"{DAY + 120_000}-0", model='=HYPERLINK("x")', tenant="+1")
    client = person(Role.VIEWER)
    answer = client.get("/verdicts/export/?format=csv&action=block")
    assert answer["Content-Disposition"] == 'attachment; filename="verdicts.csv"'
    rows = list(csv.DictReader(io.StringIO(text_of(answer))))
    assert [(row["id"], row["model"], row["tenant"]) for row in rows] == [
        (f"{DAY + 120_000}-0", '\'=HYPERLINK("x")', "'+1"),
        (f"{DAY + 60_000}-1", "", ""),
        (f"{DAY}-0", "llama", "acme"),
    ]
    assert rows[2]["time"] == datetime.fromtimestamp(DAY / 1000, UTC).isoformat(timespec="milliseconds")
    lines = text_of(client.get("/verdicts/export/?format=jsonl&tenant=acme")).splitlines()
    assert [json.loads(line)["requestId"] for line in lines] == ["r-1"]
    assert client.get("/verdicts/export/?format=pdf").status_code == 422
    assert client.get("/verdicts/export/?since=never").status_code == 422


@pytest.mark.usefixtures("told")
def test_a_file_that_is_cut_says_so_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MAX_EXPORT", 2)
    answer = person(Role.VIEWER).get("/verdicts/export/?format=jsonl")
    assert answer["Content-Disposition"] == 'attachment; filename="verdicts-newest-2.jsonl"'
    assert len(text_of(answer).splitlines()) == 2
