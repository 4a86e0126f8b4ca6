"""Django's admin in a real browser, under the console's policy; and one that lets pages keep nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test.testcases import LiveServerThread

from controlplane.core import passwords, users
from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.objectives.models import InferenceObjective
from tests.support.browser import Visit
from tests.support.console import PASSWORD
from tests.support.controlplane import ADMIN, objective

pytestmark = pytest.mark.django_db(transaction=True)

BLOCKED = """
Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("pages may keep nothing", "SecurityError"); },
});
"""


def log_in(seen: Visit, path: str, role: Role) -> Any:
    """Somebody of this role, on the page at the address."""
    users.put(users.SYSTEM, "ann", role)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    seen.go(path)
    seen.log_in("ann")
    return seen.page


def test_an_administrator_corrects_a_mistake_and_changes_and_deletes_an_object(
    visit: Callable[..., Visit], live_server: LiveServerThread
) -> None:
    apply(ADMIN, [objective()])
    seen = visit(str(live_server))
    page = log_in(seen, "/admin/", Role.ADMIN)
    seen.arrives("Objects, people and records")
    seen.check()
    page.get_by_role("link", name="Inference objectives").first.click()
    seen.check()
    page.get_by_role("link", name="interactive").click()
    seen.check()
    text = page.get_by_label("Document")
    text.fill(text.input_value().replace("priority: 10", "priority: high"))
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("spec.priority").wait_for()
    seen.check()
    text.fill(text.input_value().replace("priority: high", "priority: 7"))
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("was changed successfully").wait_for()
    assert InferenceObjective.objects.get().priority == 7
    page.get_by_role("link", name="interactive").first.click()
    page.get_by_role("link", name="History").click()
    page.get_by_role("heading", name="Audit").wait_for()
    page.go_back()
    page.get_by_role("link", name="Delete").click()
    seen.check()
    page.get_by_role("button", name="Delete it").click()
    page.get_by_text("was deleted successfully").wait_for()
    assert InferenceObjective.objects.count() == 0
    assert seen.found() == ([], [])


def test_the_console_works_where_pages_may_keep_nothing(
    visit: Callable[..., Visit], live_server: LiveServerThread
) -> None:
    seen = visit(str(live_server))
    seen.page.add_init_script(BLOCKED)
    page = log_in(seen, "/", Role.VIEWER)
    themes = []
    for _ in range(3):
        page.get_by_role("button", name="Theme").click()
        themes.append(page.evaluate("document.documentElement.dataset.theme ?? ''"))
    assert (themes, seen.errors) == (["light", "dark", ""], [])
