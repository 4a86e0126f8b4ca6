"""Charts on pages, before a browser draws them: numbers of now, and what is said when there are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import redis
from django.utils import timezone

from controlplane.core.roles import Action, Actor, Role
from controlplane.core.templatetags.console import ago, grouped
from controlplane.fleet.simulated import create_simulated
from controlplane.telemetry import feed, panels
from dataplane.telemetry.summary import FIELD, STREAM
from tests.support.console import person, text_of
from tests.support.controlplane import ADMIN, VIEWER
from tests.support.telemetry import summary

pytestmark = pytest.mark.django_db


@pytest.fixture
def bus(valkey: str, settings: Any) -> Iterator[redis.Redis]:
    """A Valkey server the control plane listens to."""
    settings.VALKEY_URL = valkey
    feed.stop()
    with redis.Redis.from_url(valkey) as found:
        yield found
    feed.stop()


def numbers(page: str) -> list[str]:
    return re.findall(r'class="chart-now"><span class="stat-value">(.*?)<', page)


def test_pages_carry_the_numbers_of_this_second_in_total_and_per_pool(bus: redis.Redis) -> None:
    for name in ("edge", "other", "silent"):
        create_simulated(ADMIN, name, ["llama"], 1)
    for pool, requests in (("edge", 1500), ("other", 2)):
        said = summary("w1", pool=pool, requests=requests, ttft_p95=0.25, queue=3.0, kv_usage=0.5)
        bus.xadd(STREAM, {FIELD: msgspec.json.encode(said)})
    client = person(Role.VIEWER)
    overview = text_of(client.get("/"))
    assert numbers(overview) == ["1,502.0", "250", "6", "50.0"]
    rows = re.findall(r'<td class="num">(.*?)</td>', overview)[:15]
    assert rows == [
        *("0 / 0", "1,500.0", "250", "3", "50.0"),
        *("0 / 0", "2.0", "250", "3", "50.0"),
        *("0 / 0", "–", "–", "–", "–"),  # noqa: RUF001 - what the page shows
    ]
    pool = text_of(client.get("/pools/other/"))
    assert numbers(pool) == ["2.0", "250", "3", "50.0"]
    assert 'data-socket="/ws/telemetry?view=charts&amp;seconds=900&amp;pool=other"' in pool


def test_without_telemetry_a_page_says_why_and_has_no_columns_for_it() -> None:
    create_simulated(ADMIN, "edge", ["llama"], 1)
    page = text_of(person(Role.VIEWER).get("/"))
    assert "No telemetry here" in page
    assert ("TTFT" in page, "charts.js" in page, numbers(page)) == (False, False, [])


def test_without_the_chart_library_numbers_stay_live(bus: redis.Redis, monkeypatch: Any) -> None:
    monkeypatch.setattr(panels.finders, "find", lambda path: None)
    page = text_of(person(Role.VIEWER).get("/"))
    assert ("uplot" in page, "Lines are not drawn" in page, "charts.js" in page) == (False, True, True)


def test_what_is_live_comes_again_without_the_charts(bus: redis.Redis) -> None:
    create_simulated(ADMIN, "edge", ["llama"], 1)
    client = person(Role.VIEWER)
    for path, identity in (("/", "tiles"), ("/pools/edge/", "summary")):
        part = text_of(client.get(path, headers={"HX-Request": "true"}))
        assert re.findall(r'id="(\w+)"[^>]* hx-swap-oob="true"', part) == [identity]
        assert ("data-socket" in part, "<html" in part) == (False, False)


def test_charts_are_for_whoever_may_read_telemetry() -> None:
    assert VIEWER.may(Action.READ, panels.TELEMETRY)
    assert panels.panel(Actor("w", Role.WORKER)) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "just now"), (12, "12 seconds ago"), (90, "1\xa0minute ago"), (7300, "2\xa0hours ago")],
)
def test_times_are_told_in_their_largest_unit(seconds: int, said: str) -> None:
    assert ago(timezone.now() - timedelta(seconds=seconds)) == said


def test_whole_numbers_are_grouped_and_nothing_else() -> None:
    shown = [grouped(value) for value in (2000000, 60, "no limit", None)]
    assert shown == ["2,000,000", "60", "no limit", None]
