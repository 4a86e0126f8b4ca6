"""Live charts in a real browser: what workers say is drawn and told, and silence is said to be silence."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from dataplane.telemetry.summary import FIELD, STREAM
from tests.support.browser import Visit
from tests.support.station import USER, Station
from tests.support.telemetry import summary
from tests.support.valkey import ValkeyServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PERIOD_S = 0.5
CHARTS = 4


class Speaker:
    """Workers of two pools that say the same every second, until they are silent."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._speaking = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        now = time.time()
        for second in range(60, 0, -1):
            self._say(now - second)
        self._speaking.set()
        self._thread.start()

    def _say(self, at: float) -> None:
        for pool, requests in (("busy", 40), ("calm", 2)):
            said = summary(
                f"{pool}-1", at, pool=pool, requests=requests, ttft_p95=0.25, queue=3.0, kv_usage=0.5
            )
            self._client.xadd(STREAM, {FIELD: msgspec.json.encode(said)})

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            if self._speaking.is_set():
                self._say(time.time())

    def be_silent(self, is_silent: bool) -> None:
        if is_silent:
            self._speaking.clear()
        else:
            self._speaking.set()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


@pytest.fixture
def speaker(station: Station, valkey_server: ValkeyServer) -> Iterator[Speaker]:
    found = Speaker(valkey_server.url)
    yield found
    found.end()


def opened(visit: Callable[..., Visit], station: Station, **options: Any) -> Visit:
    seen = visit(station.url, **options)
    seen.go("/")
    seen.log_in(USER)
    return seen


def state(seen: Visit, name: str) -> Any:
    return seen.page.locator(f"[data-state={name}]:visible")


def test_charts_show_what_workers_say_and_say_when_they_do_not(
    visit: Callable[..., Visit], station: Station, speaker: Speaker
) -> None:
    seen = opened(visit, station)
    page = seen.page
    state(seen, "live").wait_for()
    sockets = list[Any]()
    page.on("websocket", lambda socket: sockets.append(socket))
    page.reload()
    state(seen, "live").wait_for()
    requests, ttft, queue, kv = page.locator(".chart").all()
    wait_until(lambda: page.locator(".plot canvas:visible").count() == CHARTS)
    for chart, shown in ((requests, "42.0"), (ttft, "250"), (queue, "6"), (kv, "50.0")):
        chart.locator(".stat-value").get_by_text(shown, exact=True).wait_for()

    def lines() -> list[list[str]]:
        return [button.inner_text().split("\n") for button in requests.locator(".legend-item").all()][:3]

    wait_until(lambda: lines() == [["All pools", "42.0"], ["busy", "40.0"], ["calm", "2.0"]], lines)
    # The first second may hold one worker alone.
    said = requests.locator(".chart-said").inner_text
    wait_until(lambda: re.search(r"mean [34]\d\.\d /s, in the last 15 minutes", said()), said)
    requests.get_by_text("As a table").click()
    cells = requests.get_by_role("row", name="calm").get_by_role("cell")
    cells.get_by_text("2.0 /s").first.wait_for()
    wait_until(lambda: cells.all_inner_texts() == ["2.0 /s"] * 4, cells.all_inner_texts)
    seen.check()

    ttft.get_by_role("button", name="calm").click()
    hidden = page.locator(".legend-item[aria-pressed=false]")
    wanted = [f"calm\n{value}" for value in ("2.0", "250", "3", "50.0")]
    wait_until(lambda: hidden.all_inner_texts() == wanted, hidden.all_inner_texts)

    page.get_by_role("button", name="Pause").click()
    state(seen, "paused").wait_for()
    page.get_by_role("button", name="Pause").click()
    state(seen, "live").wait_for()

    speaker.be_silent(True)
    state(seen, "off").wait_for()
    page.locator("#charts-why").get_by_text("no worker is heard").wait_for()
    seen.check()
    speaker.be_silent(False)
    state(seen, "live").wait_for()
    assert seen.found() == ([], [])
    assert len(sockets) == 2  # one until the pause, and one since

    station.stop_web()
    state(seen, "off").wait_for()
    page.locator("#charts-why").get_by_text("no connection to the control plane; trying again.").wait_for()
    station.start_web()
    state(seen, "live").wait_for()


def test_without_the_chart_library_all_but_the_lines_is_there(
    visit: Callable[..., Visit], station: Station, speaker: Speaker
) -> None:
    seen = visit(station.url)
    seen.page.route("**/vendor/uplot.min.js", lambda route: route.abort())
    seen.go("/")
    seen.log_in(USER)
    state(seen, "live").wait_for()
    wait_until(lambda: seen.page.locator(".legend-item", has_text="busy").count() == CHARTS)
    assert (seen.page.locator(".plot:visible").count(), seen.page.locator("canvas").count()) == (0, 0)


def test_without_javascript_there_are_the_numbers_and_the_tables(
    visit: Callable[..., Visit], station: Station, speaker: Speaker
) -> None:
    seen = opened(visit, station, java_script_enabled=False)
    page = seen.page
    state(seen, "loaded").wait_for()
    values = page.locator(".stat-value")

    def shown() -> list[str]:
        page.reload()  # nothing else brings news to this browser
        return list(values.all_inner_texts()[4:])

    wait_until(lambda: shown() == ["42.0", "250", "6", "50.0"], values.all_inner_texts)
    assert page.locator(".plot:visible, .legend:visible, #charts-pause:visible").count() == 0
    page.get_by_role("heading", name="Latest rollouts").wait_for()
    seen.go("/audit/")
    page.get_by_label("Kind").fill("User")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("strong").or_(page.get_by_text(USER, exact=True)).first.wait_for()
