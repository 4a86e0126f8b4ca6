"""A security officer's pages in a real browser: policies, the pane that tries them, verdicts, processors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis
from django.test.testcases import LiveServerThread

from controlplane.configs.services import ProcessorConfigService
from controlplane.core import passwords, users
from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.policies import verdicts
from controlplane.telemetry import feed
from dataplane.verdicts import FIELD, STREAM, VerdictRecord
from tests.support.browser import PHONE, Visit
from tests.support.console import PASSWORD
from tests.support.controlplane import ADMIN, GUARDRAILS, processor_config

pytestmark = pytest.mark.django_db(transaction=True)


def record(rule: str = "codenames", **fields: Any) -> bytes:
    said = {"at": 0.0, "processor": "edge", "type": "patterns", "kind": "pattern 0", "stage": "request"}
    return msgspec.json.encode(
        VerdictRecord(**{**said, "policy": "baseline", "rule": rule, "action": "block", **fields})
    )


@pytest.fixture
def bus(valkey: str, settings: Any) -> Iterator[redis.Redis]:
    settings.VALKEY_URL = valkey
    verdicts.counting.forget()
    with redis.Redis.from_url(valkey) as found:
        yield found
    verdicts.counting.forget()
    feed.stop()


@pytest.fixture
def seen(visit: Callable[..., Visit], live_server: LiveServerThread) -> Visit:
    """A page on which an operator is logged in; there are two policies and a processor."""
    users.put(users.SYSTEM, "ann", Role.OPERATOR)
    passwords.put(users.SYSTEM, "ann", PASSWORD)
    other = {**GUARDRAILS, "metadata": {"name": "first"}}
    other = {**other, "spec": {**GUARDRAILS["spec"], "priority": 20, "tenants": ["research"]}}
    apply(ADMIN, [GUARDRAILS, other])
    ProcessorConfigService().create(ADMIN, processor_config())
    found = visit(str(live_server))
    found.go("/")
    found.log_in("ann")
    return found


def test_a_policy_is_understood_and_tried_without_leaving_its_page(seen: Visit, bus: redis.Redis) -> None:
    page = seen.page
    page.get_by_role("link", name="Guardrails").click()
    seen.check()
    page.get_by_role("link", name="baseline").first.click()
    page.get_by_text("Does not count where").first.wait_for()
    seen.check()

    def result(action: str) -> None:
        page.get_by_role("button", name="Try it").click()
        page.locator("#tried .status", has_text=action).first.wait_for()  # htmx brings it
        seen.check()

    page.get_by_label("Text, JSON, or JSON lines").fill("to ada@example.org, zebra-7 and pass\u200bword")
    result("Blocked")
    assert page.locator("mark").all_inner_texts() == ["1ada@example.org", "2zebra-7"]
    page.get_by_label("Text, JSON, or JSON lines").fill(json.dumps({"prompt": "to ada@example.org"}))
    page.get_by_label("It is a").select_option(label="JSON request or answer")
    result("Masked")
    page.get_by_label("Text, JSON, or JSON lines").fill('{"text": "zebra-7", "expect": "pass"}')
    page.get_by_label("It is a").select_option(label="Corpus, JSON lines")
    result("1 not as expected")
    page.get_by_label("Text, JSON, or JSON lines").fill("no JSON")
    page.get_by_role("button", name="Try it").click()
    page.get_by_text("1 thing is wrong").wait_for()
    seen.check()
    assert page.url.endswith("/guardrails/baseline/")
    assert seen.found() == ([], [])


def test_a_policy_is_made_from_a_ready_one_tried_as_a_draft_and_published(seen: Visit) -> None:
    page = seen.page
    seen.go("/guardrails/")
    page.get_by_role("link", name="New policy").click()
    page.get_by_role("link", name="Words kept inside").click()
    seen.check()
    text = page.get_by_label("GuardrailPolicy (YAML)")
    text.fill(text.input_value().replace("project zebra", "project okapi"))
    page.get_by_label("Why").fill("names")
    page.get_by_label("Text, JSON, or JSON lines").fill("about Project Okapi")
    page.get_by_role("button", name="Try it").click()
    page.locator("mark").wait_for()  # htmx brings it
    assert page.locator("mark").inner_text() == "1Project Okapi"
    assert "okapi" in text.input_value()
    seen.check()
    page.get_by_role("button", name="Make it").click()
    page.get_by_text("words is made").wait_for()
    seen.check()
    text.fill(text.input_value().replace("type: keywords", "type: keyword"))
    page.get_by_label("Why", exact=True).fill("typo")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("nothing was changed").wait_for()
    seen.check()
    seen.go("/guardrails/words/config/")
    page.get_by_label("Why publish it").fill("names")
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("Complete", exact=True).wait_for()
    page.get_by_role("link", name="Summary").click()
    page.get_by_text("1 is in force").wait_for()
    seen.check()
    page.get_by_role("link", name="Delete").click()
    seen.check()
    assert seen.found() == ([], [])


def test_verdicts_come_by_themselves_and_lead_to_one_another(seen: Visit, bus: redis.Redis) -> None:
    page = seen.page
    seen.go("/verdicts/")
    page.get_by_text("Nothing was found yet").wait_for()
    seen.check()
    bus.xadd(STREAM, {FIELD: record(tenant="research", model="llama-3", pool="pool", request_id="r-1")})
    bus.xadd(STREAM, {FIELD: record("personal-data", action="mask", request_id="r-2")})
    page.get_by_role("row").filter(has_text="codenames").wait_for()  # htmx brings it
    seen.check()
    page.get_by_role("row").filter(has_text="codenames").get_by_role("link", name="r-1").click()
    page.get_by_label("Request id").wait_for()
    assert page.get_by_label("Request id").input_value() == "r-1"
    assert page.get_by_role("row").count() == 2
    page.get_by_role("link", name="whole").click()
    page.get_by_role("heading", name="codenames found pattern 0").wait_for()
    seen.check()
    page.get_by_role("link", name="baseline").click()
    page.get_by_role("link", name="1 block").first.wait_for()
    seen.go("/verdicts/?since=never")
    seen.check()
    seen.go("/verdicts/")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "verdicts.csv"
    assert seen.found() == ([], [])


def test_while_valkey_is_away_pages_say_so(seen: Visit, settings: Any) -> None:
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    verdicts.counting.forget()
    for path in ("/verdicts/", "/guardrails/", "/guardrails/baseline/"):
        seen.go(path)
        seen.page.get_by_text("Valkey does not answer").first.wait_for()
        seen.check()
    assert seen.found() == ([], [])
    verdicts.counting.forget()


def test_a_processor_s_configuration_is_made_checked_and_published(seen: Visit) -> None:
    page = seen.page
    page.get_by_role("link", name="Processors").click()
    seen.check()
    page.get_by_role("link", name="New configuration").click()
    page.get_by_role("link", name="Routing by model alone").click()
    seen.check()
    page.get_by_label("PayloadProcessorConfig (YAML)").fill("kind: PayloadProcessorConfig\nmetadata: {}\n")
    page.get_by_role("button", name="Make it").click()
    page.get_by_text("nothing was changed").wait_for()
    seen.check()
    seen.go("/new/processor/")
    page.get_by_label("Why").fill("begin")
    page.get_by_role("button", name="Make it").click()
    page.get_by_text("default is made").wait_for()
    page.get_by_label("Why publish it").fill("begin")
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("Revision 1 is on its way").wait_for()
    seen.check()
    page.get_by_role("link", name="Revision 1", exact=True).click()
    seen.check()
    page.get_by_role("link", name="Summary").click()
    page.get_by_text("What it does, in this order").wait_for()
    seen.check()
    page.get_by_role("link", name="Delete").click()
    seen.check()
    assert seen.found() == ([], [])


def test_without_javascript_a_policy_is_tried_as_well(
    visit: Callable[..., Visit], seen: Visit, bus: redis.Redis
) -> None:
    plain = visit(seen.url, java_script_enabled=False)
    plain.go("/guardrails/baseline/")
    plain.log_in("ann")
    plain.page.get_by_label("Text, JSON, or JSON lines").fill("zebra-7")
    plain.page.get_by_role("button", name="Try it").click()
    assert plain.page.locator("mark").inner_text() == "1zebra-7"
    assert plain.page.get_by_label("Text, JSON, or JSON lines").input_value() == "zebra-7"
    assert plain.page.get_by_role("heading", level=1).inner_text() == "baseline"


def test_nothing_is_wider_than_a_phone(seen: Visit, bus: redis.Redis) -> None:
    bus.xadd(STREAM, {FIELD: record(request_id="r" * 128, model="m" * 200, path="messages[0].content")})
    (identity, _), *_ = bus.xrange(STREAM)
    page = seen.page
    page.set_viewport_size({"width": PHONE, "height": 844})
    for path in (
        *("/guardrails/", "/guardrails/baseline/", "/guardrails/baseline/config/", "/new/guardrail/"),
        *("/verdicts/", f"/verdicts/{identity.decode()}/"),
        *("/processors/", "/processors/by-model/", "/processors/by-model/config/", "/new/processor/"),
        *("/processors/by-model/revisions/1/", "/processors/by-model/delete/"),
    ):
        seen.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE, path
