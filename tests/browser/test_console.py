"""An operator's first minutes in a real browser, with real pickers that follow what is published."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import yaml

from tests.support.browser import Visit
from tests.support.station import USER, Follower, Station
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCORER = "queue-scorer"


def weights(pickers: list[Follower]) -> list[float]:
    return sorted(picker.weight(SCORER) for picker in pickers)


def test_a_first_visit_from_login_to_roll_back(
    visit: Callable[..., Visit], station: Station, request: pytest.FixtureRequest
) -> None:
    seen = visit(station.url)
    page = seen.page
    seen.go("/")
    seen.check()
    seen.log_in(USER)
    seen.arrives("Overview")

    pickers = make_pool(seen, station)
    request.addfinalizer(lambda: station.leave(pickers))
    change_a_weight_through_a_canary_to_all_and_back(seen, station, pickers)
    make_a_tenant_with_a_key(seen)

    page.get_by_role("link", name="Audit").click()
    page.get_by_text("rollback").first.wait_for()
    seen.check()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login/**")
    assert seen.found() == ([], [])


def make_pool(seen: Visit, station: Station) -> list[Follower]:
    """Through the form; its pickers start and follow."""
    page = seen.page
    page.get_by_role("link", name="Pools").click()
    seen.check()
    page.get_by_role("link", name="New pool").click()
    seen.check()
    page.get_by_label("Name").fill("edge")
    page.get_by_label("Models").fill("llama")
    page.get_by_role("button", name="Make the pool").click()
    seen.arrives("edge")
    pickers = station.follow("edge", "edge-1", "edge-2")
    for name in ("edge-1", "edge-2"):
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))
        row.get_by_text("Connected").wait_for()  # htmx brings it
        row.get_by_role("cell", name="1", exact=True).wait_for()
    page.locator("[data-state=live]:visible").wait_for()
    seen.check()
    return pickers


def change_a_weight_through_a_canary_to_all_and_back(
    seen: Visit, station: Station, pickers: list[Follower]
) -> None:
    """What pickers say they run is what the page says."""
    page = seen.page
    assert {picker.revision().partition("@")[0] for picker in pickers} == {"edge/1"}
    page.get_by_role("link", name="Configuration").click()
    text = page.get_by_label("EndpointPickerConfig (YAML)")
    document = yaml.safe_load(text.input_value())
    entry = next(p for p in document["schedulingProfiles"][0]["plugins"] if p["pluginRef"] == SCORER)
    before, entry["weight"] = float(entry["weight"]), 7
    text.fill(yaml.safe_dump(document))
    page.get_by_label("Why").fill("longer queues matter more")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("This is a valid configuration").wait_for()
    seen.check()
    page.get_by_role("button", name="Save as a new revision").click()
    page.get_by_text(f"schedulingProfiles[default].plugins[{SCORER}].weight").wait_for()
    page.get_by_label("Canary").fill("1")
    seen.check()
    page.get_by_role("button", name="Publish").click()

    page.get_by_text("1 of 2 run it").wait_for()  # htmx brings it
    wait_until(lambda: weights(pickers) == [before, 7.0])
    canary = next(picker for picker in pickers if picker.weight(SCORER) == 7.0)
    name = f"edge-{pickers.index(canary) + 1}"
    wait_until(lambda: station.applied(name)["revision"] == 2)
    applied = station.applied(name)
    assert canary.revision() == f"edge/2@{applied['digest'][:12]}"
    seen.check()
    page.get_by_role("button", name="Promote to all").click()
    page.get_by_text("2 of 2 run it").wait_for()
    page.get_by_text("Complete", exact=True).wait_for()
    wait_until(lambda: weights(pickers) == [7.0, 7.0])
    page.get_by_role("button", name="Roll back").click()
    page.get_by_text("Rolled back: revision 3 says what was before.").wait_for()
    wait_until(lambda: weights(pickers) == [before, before])
    assert {picker.revision().partition("@")[0] for picker in pickers} == {"edge/3"}
    page.get_by_text("Complete", exact=True).wait_for()
    wait_until(lambda: station.applied(name)["revision"] == 3)


def make_a_tenant_with_a_key(seen: Visit) -> None:
    """The key is shown this once."""
    page = seen.page
    page.get_by_role("link", name="Tenants").click()
    seen.check()
    page.get_by_role("link", name="New tenant").first.click()
    page.get_by_label("Name", exact=True).fill("acme")
    seen.check()
    page.get_by_role("button", name="Make the tenant").click()
    page.get_by_label("Name of the key").fill("app")
    page.get_by_role("button", name="Make a key").click()
    assert re.fullmatch(r"sk-pm-\S{40,}", page.locator(".secret").inner_text())
    seen.check()
