"""From a guardrail's verdict in a processor over Valkey to the API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import redis

from cli.main import main
from controlplane.core.roles import Role
from dataplane.verdicts import FIELD, STREAM
from ipp.guardrails.verdicts import Verdict
from ipp.metrics import IppMetrics
from ipp.verdict_log import VerdictLog
from tests.support.controlplane import client, token

pytestmark = pytest.mark.django_db


def verdict(rule: str, **fields: Any) -> Verdict:
    given = {"kind": "word 0", "stage": "request", "action": "block", **fields}
    return Verdict(policy="house", rule=rule, type="keywords", **given)


def told(query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = client(Role.VIEWER).get(f"/api/v1/guardrails/verdicts{query}").json()
    return found


async def tell(url: str) -> None:
    log = VerdictLog(IppMetrics(), "edge", url)
    log.tell("r-1", "acme", "m", "edge", [verdict("birds", path="messages[0].content", start=2, end=9)])
    log.tell("r-2", "other", "m", "", [verdict("fish", stage="stream"), verdict("birds")])
    await log.stop()


@pytest.mark.django_db(transaction=True)
def test_verdicts_are_told_newest_first_and_chosen_by_their_fields(valkey: str, settings: Any) -> None:
    settings.VALKEY_URL = valkey
    asyncio.run(tell(valkey))
    with redis.Redis.from_url(valkey) as bus:
        bus.xadd(STREAM, {FIELD: b"junk"})
        bus.xadd(STREAM, {"other": b"junk"})
    found = told()
    assert found["configured"] is True
    assert [(each["requestId"], each["rule"]) for each in found["items"]] == [
        ("r-2", "birds"),
        ("r-2", "fish"),
        ("r-1", "birds"),
    ]
    oldest = found["items"][-1]
    assert {key: oldest[key] for key in ("processor", "tenant", "model", "path", "start", "end")} == {
        "processor": "edge",
        "tenant": "acme",
        "model": "m",
        "path": "messages[0].content",
        "start": 2,
        "end": 9,
    }
    assert [each["requestId"] for each in told("?rule=birds&tenant=acme")["items"]] == ["r-1"]
    assert [each["requestId"] for each in told("?pool=edge")["items"]] == ["r-1"]
    pages = [told("?limit=1")]
    while pages[-1]["older"]:
        pages.append(told(f"?limit=1&before={pages[-1]['older']}"))
    assert [each["id"] for page in pages for each in page["items"]] == [each["id"] for each in found["items"]]
    assert len({each["id"] for each in found["items"]}) == 3


@pytest.mark.django_db(transaction=True)
def test_the_command_shows_them_the_newest_last(
    valkey: str,
    settings: Any,
    live_server: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings.VALKEY_URL = valkey
    monkeypatch.setenv("POINTSMAN_TOKEN", token(Role.VIEWER))
    asyncio.run(tell(valkey))
    command = ["guard", "verdicts", "--url", live_server.url]
    assert main([*command, "--rule", "birds"]) == 0
    shown = [line.partition("Z  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "request  house/birds: word 0 at messages[0].content[2:9]: block  tenant acme model m requestId r-1",
        "request  house/birds: word 0: block  tenant other model m requestId r-2",
    ]
    assert main([*command, "--limit", "1", "--stage", "stream", "--json"]) == 0
    assert [json.loads(line)["rule"] for line in capsys.readouterr().out.splitlines()] == ["fish"]
    assert main([*command, "--limit", "0"]) == 1
    assert capsys.readouterr() == ("", "pointsman guard: error: limit: must be a number from 1 to 500\n")
    settings.VALKEY_URL = ""
    assert main(command) == 1
    assert "has no Valkey" in capsys.readouterr().err


def test_without_valkey_nothing_is_known_and_said_so(settings: Any) -> None:
    settings.VALKEY_URL = ""
    assert told() == {"configured": False, "available": False, "items": [], "older": None}


def test_while_valkey_is_away_the_answer_says_so(settings: Any) -> None:
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    assert told() == {"configured": True, "available": False, "items": [], "older": None}


@pytest.mark.parametrize(
    ("query", "path"),
    [("?limit=0", "limit"), ("?limit=x", "limit"), ("?tenent=a", "tenent"), ("?before=1", "before")],
)
def test_a_question_that_is_none_is_refused(query: str, path: str) -> None:
    assert [detail["path"] for detail in told(query)["details"]] == [path]


async def test_what_valkey_does_not_take_waits_up_to_a_cap_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ipp.verdict_log.MAX_WAITING", 2)
    metrics = IppMetrics()
    log = VerdictLog(metrics, "edge", "redis://127.0.0.1:1/0")
    for number in range(3):
        log.tell(f"r-{number}", "", "", "", [verdict("birds")])
    page = "".join(metrics.numbers.expose())
    assert "pointsman_ipp_guardrail_verdicts_dropped_total 1\n" in page
    await log.stop()
