"""Pages in the states that are seldom seen: refused, stale, halted, wrong, empty; axe looks at each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from django.test.testcases import LiveServerThread
from django.utils import timezone

from controlplane.configs import rollouts, workers
from controlplane.configs.models import ConfigDocument
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import PickerConfigService
from controlplane.core import passwords, users
from controlplane.core.errors import Detail
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.fleet.simulated import create_simulated
from controlplane.tenancy.services import TenantService
from controlplane.xds.models import Worker
from tests.support.browser import PHONE, Visit
from tests.support.console import PASSWORD, config_text
from tests.support.controlplane import ADMIN, TENANT, WORKER

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def seen(visit: Callable[..., Visit], live_server: LiveServerThread) -> Visit:
    """A page on which an operator is logged in; there are a pool and a tenant."""
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    create_simulated(ADMIN, "edge", ["llama"], 2)
    TenantService().create(ADMIN, TENANT)
    found = visit(str(live_server))
    found.go("/")
    found.log_in("ann")
    return found


def change(weight: int) -> None:
    """Somebody else's change."""
    row = ConfigDocument.objects.get(name="edge")
    document = yaml.safe_load(config_text(weight))
    PickerConfigService().update(ADMIN, "edge", document, row.version)


def test_pages_one_seldom_sees_are_as_good_as_the_others(seen: Visit) -> None:
    page = seen.page
    for path in (
        "/tenants/",
        "/tenants/research/",
        "/pools/none/",
        "/nowhere/",
        "/styleguide/",
        "/password/",
    ):
        seen.go(path)
        seen.check()
    seen.go("/pools/edge/delete/")
    page.get_by_label("Type the pool's name").fill("edg")
    page.get_by_role("button", name="Delete the pool").click()
    page.get_by_text("This is not the pool's name").wait_for()
    seen.check()

    seen.go("/audit/?kind=InferencePool&name=edge")
    page.get_by_text("create", exact=True).wait_for()
    seen.check()
    seen.go(f"/audit/{AuditEntry.objects.filter(kind='Tenant').latest('id').pk}/")
    seen.check()
    seen.go("/audit/?name=nobody")
    page.get_by_text("Nothing like that was changed").wait_for()
    seen.go("/audit/?since=never")
    seen.check()
    assert seen.found() == ([], [])


def test_a_configuration_that_is_wrong_stale_or_halted_says_what_to_do(seen: Visit) -> None:
    page = seen.page
    seen.go("/pools/edge/config/")
    text = page.get_by_label("EndpointPickerConfig (YAML)")
    text.fill(config_text(5).replace("queue-scorer", "queue-scorrer"))
    page.get_by_label("Why").fill("try")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("nothing was changed").wait_for()
    seen.check()

    text.fill(config_text(5))
    change(7)
    page.get_by_role("button", name="Save as a new revision").click()
    page.get_by_text("Somebody else has changed this").wait_for()
    page.get_by_text("Their text").click()
    seen.check()

    now = timezone.now()
    Worker.objects.create(
        node_id="edge-1", pool="edge", user="w", connected_at=now, seen_at=now, is_awaited=True
    )
    rollout = rollouts.publish(ADMIN, "edge", Wish(comment="try"))
    seen.go("/pools/edge/config/")
    page.get_by_text("0 of 1 run it").wait_for()
    workers.acknowledge(WORKER, "edge-1", "edge", 2, [Detail("plugins[0]", "must be small")], rollout.pk)
    page.get_by_text("Halted", exact=True).wait_for()  # htmx brings it, and the form to publish again
    page.get_by_label("Why publish it").fill("once more")
    page.wait_for_timeout(2500)  # longer than what is live takes to come again
    assert page.get_by_label("Why publish it").input_value() == "once more"
    assert page.locator("[hx-trigger]").count() == 0
    seen.check()
    assert seen.found() == ([], [])


def test_nothing_is_wider_than_a_phone(seen: Visit) -> None:
    page = seen.page
    page.set_viewport_size({"width": PHONE, "height": 844})
    for path in (
        *("/", "/pools/", "/new/pool/", "/pools/edge/", "/pools/edge/config/", "/pools/edge/delete/"),
        *("/tenants/", "/new/tenant/", "/tenants/research/", "/audit/", "/styleguide/", "/password/"),
    ):
        seen.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE, path
