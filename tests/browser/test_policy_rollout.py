"""A guardrail policy in a browser: from a ready one to two real payload processors, through a canary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.browser import Visit
from tests.support.station import USER, Follower, Station
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(150)]


def enforced(processors: list[Follower]) -> list[dict[str, int]]:
    """Each one's policies with their revisions, the most first."""
    found = [dict(each.config()["guardrails"]["revisions"]) for each in processors]
    return sorted(found, key=len, reverse=True)


def test_a_policy_is_enforced_by_one_processor_then_by_all_and_no_more(
    visit: Callable[..., Visit], station: Station, request: pytest.FixtureRequest
) -> None:
    processors = station.process("inspect", "inspect-1", "inspect-2")
    request.addfinalizer(lambda: station.leave(processors))
    seen = visit(station.url)
    page = seen.page
    seen.go("/")
    seen.log_in(USER)
    seen.go("/new/guardrail/?from=secrets")
    page.get_by_role("button", name="Make it").click()
    page.get_by_text("2 workers (payload processors of every name)").wait_for()
    page.get_by_label("Canary").fill("1")
    page.get_by_label("Why publish it").fill("keys stay here")
    page.get_by_role("button", name="Publish").click()

    page.get_by_text("1 of 2 run it").wait_for()  # htmx brings it
    assert enforced(processors) == [{"secrets": 1}, {}]
    seen.check()
    page.get_by_role("button", name="Promote to all").click()
    page.get_by_text("2 of 2 run it").wait_for()
    page.get_by_text("Complete", exact=True).wait_for()
    assert enforced(processors) == [{"secrets": 1}, {"secrets": 1}]
    seen.go("/guardrails/")
    page.get_by_text("In force").wait_for()

    seen.go("/guardrails/secrets/delete/")
    page.get_by_label("Type its name").fill("secrets")
    page.get_by_role("button", name="Delete it").click()
    page.get_by_text("secrets is deleted").wait_for()
    wait_until(lambda: enforced(processors) == [{}, {}])
    assert seen.found() == ([], [])
