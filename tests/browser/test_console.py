"""The console in a real browser: an operator's first minutes, in both themes, and axe's verdict.

The pages are served in this process. Workers are there as rows, and take what they are given as soon as the
page waits for them.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
import yaml
from django.test.testcases import LiveServerThread
from django.utils import timezone

from controlplane.configs import plans, workers
from controlplane.configs.rollout import Canary
from controlplane.core import passwords, users
from controlplane.core.roles import Role
from controlplane.xds.models import Worker
from tests.support.controlplane import ADMIN, WORKER

CHROMIUM = shutil.which("chromium")
PASSWORD = "correct horse battery"

pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
]


def check(page: Any, seen: list[str]) -> None:
    """Keep what axe says against the page as it is, and whether it is wider than a phone."""
    for violation in axe.Axe().run(page).response["violations"]:
        targets = [node["target"] for node in violation["nodes"]]
        seen.append(f"{page.url}: {violation['id']} {targets}")
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    width = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size(wide)
    if width != 390:
        seen.append(f"{page.url}: {width} pixels wide on a phone of 390")


def test_a_first_visit_from_login_to_roll_back(page: Any, live_server: LiveServerThread) -> None:
    url, verdicts, errors = str(live_server), list[str](), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)

    page.goto(f"{url}/")
    check(page, verdicts)
    page.get_by_label("Username").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Overview"
    check(page, verdicts)

    page.get_by_role("link", name="Pools").click()
    check(page, verdicts)
    page.get_by_role("link", name="New pool").click()
    check(page, verdicts)
    page.get_by_label("Name").fill("edge")
    page.get_by_label("Models").fill("llama")
    page.get_by_role("button", name="Make the pool").click()
    assert page.get_by_role("heading", level=1).inner_text() == "edge"
    now = timezone.now()
    for name in ("edge-1", "edge-2"):
        Worker.objects.create(
            node_id=name, pool="edge", user="fleet", connected_at=now, seen_at=now, is_awaited=True
        )
    page.reload()
    check(page, verdicts)

    page.get_by_role("link", name="Configuration").click()
    text = page.get_by_label("EndpointPickerConfig (YAML)")
    document = yaml.safe_load(text.input_value())
    document["schedulingProfiles"][0]["plugins"][0]["weight"] = 7
    text.fill(yaml.safe_dump(document))
    page.get_by_label("Why").fill("longer queues matter more")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("This is a valid configuration").wait_for()
    check(page, verdicts)
    page.get_by_role("button", name="Save as a new revision").click()
    page.get_by_text("schedulingProfiles[default].plugins[queue-scorer].weight").wait_for()
    page.get_by_label("Canary").fill("1")
    check(page, verdicts)
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("0 of 2 run it").wait_for()
    planned = plans.plan(ADMIN, "edge", 2, Canary(count=1))["workers"]
    first, then = sorted(planned, key=lambda row: not row["first"])
    workers.acknowledge(WORKER, first["worker"], "edge", 2)
    page.get_by_text("1 of 2 run it").wait_for()  # htmx brings it
    check(page, verdicts)
    page.get_by_role("button", name="Promote to all").click()
    page.get_by_text("Rolling", exact=True).wait_for()
    workers.acknowledge(WORKER, then["worker"], "edge", 2)
    page.get_by_text("2 of 2 run it").wait_for()
    page.get_by_text("Complete", exact=True).wait_for()
    page.reload()
    page.get_by_role("button", name="Roll back").click()
    page.get_by_text("Rolled back: revision 3 says what was before.").wait_for()

    page.get_by_role("link", name="Tenants").click()
    page.get_by_role("link", name="New tenant").first.click()
    page.get_by_label("Name", exact=True).fill("acme")
    check(page, verdicts)
    page.get_by_role("button", name="Make the tenant").click()
    page.get_by_label("Name of the key").fill("app")
    page.get_by_role("button", name="Make a key").click()
    assert re.fullmatch(r"sk-pm-\S{40,}", page.locator(".secret").inner_text())
    check(page, verdicts)
    page.get_by_role("button", name="Log out").click()
    assert "/login/" in page.url
    assert (verdicts, errors) == ([], [])


def test_nothing_is_wider_than_a_phone(page: Any, live_server: LiveServerThread) -> None:
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{live_server}/")
    page.get_by_label("Username").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    for path in ("/", "/pools/", "/new/pool/", "/tenants/", "/new/tenant/", "/password/"):
        page.goto(f"{live_server}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
