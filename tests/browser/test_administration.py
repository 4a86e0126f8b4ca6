"""Django's admin in a real browser, under the console's policy; and one that lets pages keep nothing."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from django.test.testcases import LiveServerThread

from controlplane.core import passwords, users
from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.objectives.models import InferenceObjective
from tests.support.controlplane import ADMIN, objective

pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium"),
]

PASSWORD = "correct horse battery"
BLOCKED = """
Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("pages may keep nothing", "SecurityError"); },
});
"""


def log_in(page: Any, url: str, role: Role) -> list[str]:
    """Log in, and keep what the browser complains of from now on: scripts that fail, and the policy."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    users.put(users.SYSTEM, "ann", role)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    page.goto(url)
    page.get_by_label("Username").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    return errors


def test_an_administrator_corrects_a_mistake_and_changes_and_deletes_an_object(
    page: Any, live_server: LiveServerThread
) -> None:
    apply(ADMIN, [objective()])
    errors = log_in(page, f"{live_server}/admin/", Role.ADMIN)
    verdicts: list[str] = []

    def check() -> None:
        page.wait_for_load_state()
        count = len(errors)
        found = axe.Axe().run(page).response["violations"]
        del errors[count:]  # axe reads imported style sheets by styles of its own, which the policy forbids
        verdicts.extend(f"{page.url}: {each['id']} {[n['target'] for n in each['nodes']]}" for each in found)

    assert page.get_by_role("heading", level=1).inner_text() == "Objects, people and records"
    check()
    page.get_by_role("link", name="Inference objectives").first.click()
    check()
    page.get_by_role("link", name="interactive").click()
    check()
    text = page.get_by_label("Document")
    text.fill(text.input_value().replace("priority: 10", "priority: high"))
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("spec.priority").wait_for()
    check()
    text.fill(text.input_value().replace("priority: high", "priority: 7"))
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("was changed successfully").wait_for()
    assert InferenceObjective.objects.get().priority == 7
    page.get_by_role("link", name="interactive").first.click()
    page.get_by_role("link", name="History").click()
    page.get_by_role("heading", name="Audit").wait_for()
    page.go_back()
    page.get_by_role("link", name="Delete").click()
    check()
    page.get_by_role("button", name="Delete it").click()
    page.get_by_text("was deleted successfully").wait_for()
    assert InferenceObjective.objects.count() == 0
    assert verdicts == []
    assert errors == []


def test_the_console_works_where_pages_may_keep_nothing(page: Any, live_server: LiveServerThread) -> None:
    page.add_init_script(BLOCKED)
    errors = log_in(page, f"{live_server}/", Role.VIEWER)
    themes = []
    for _ in range(3):
        page.get_by_role("button", name="Theme").click()
        themes.append(page.evaluate("document.documentElement.dataset.theme ?? ''"))
    assert (themes, errors) == (["light", "dark", ""], [])
