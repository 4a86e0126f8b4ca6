"""A guardrail policy on pages from a ready one over a draft, a canary and back; drafts are tried before."""

from __future__ import annotations

import copy
import html
import re
from typing import Any

import pytest
import yaml
from django.test import Client
from django.utils import timezone

from controlplane.configs import plans, workers
from controlplane.configs.models import ConfigRevision, Rollout
from controlplane.configs.rollout import Canary
from controlplane.core.documents import apply
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.policies.models import GuardrailPolicy
from controlplane.policies.pages.place import STARTERS
from controlplane.xds.models import Worker
from controlplane.xds.nodes import NodeKind
from tests.support.console import person, text_of
from tests.support.controlplane import ADMIN, GUARDRAILS, WORKER

pytestmark = pytest.mark.django_db

ONE = "/guardrails/baseline/"
KIND = "GuardrailPolicy"


def text(message: str = "Internal names stay here.") -> str:
    document = copy.deepcopy(GUARDRAILS)
    document["spec"]["rules"][1]["message"] = message
    return yaml.safe_dump(document)


@pytest.fixture
def policy() -> None:
    """In force."""
    apply(ADMIN, [GUARDRAILS])


def save(client: Client, said: str, version: int, do: str = "save", **more: str) -> Any:
    return client.post(
        f"{ONE}config/", {"text": said, "comment": "why", "version": str(version), "do": do, **more}
    )


def marked(page: str) -> list[str]:
    found = re.findall(r"<mark [^>]*>(?:<sup>[\d ]+</sup>)?(.*?)</mark>", page)
    return [html.unescape(re.sub(r"<[^>]+>", "", text)) for text in found]


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.key)
def test_every_ready_policy_is_taken_as_it_stands_and_is_a_draft_at_first(starter: Any) -> None:
    client = person(Role.OPERATOR)
    page = text_of(client.get(f"/new/guardrail/?from={starter.key}"))
    assert re.findall(r'href="\?from=([\w-]+)" aria-current', page) == [starter.key]
    made = client.post("/new/guardrail/", {"text": starter.text, "comment": "begin", "do": "save"})
    assert made["Location"] == f"/guardrails/{starter.key}/config/"
    assert (ConfigRevision.objects.get().comment, Rollout.objects.count()) == ("begin", 0)
    assert "none is in force yet" in text_of(client.get(f"/guardrails/{starter.key}/"))
    assert "Draft</span>" in text_of(client.get("/guardrails/"))


SAMPLES = {
    "personal-data": ("write to ada@example.org", ["ada@example.org"]),
    "secrets": ("use AKIAIOSFODNN7EXAMPLQ today", ["AKIAIOSFODNN7EXAMPLQ"]),
    "prompt-injection": ("pass\u200bword", ["U+200B"]),
    "words": ("about Project Heron", ["Project Heron"]),
    "limits": ("x", []),
}


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.key)
def test_a_ready_policy_does_what_it_says_before_it_is_made(starter: Any) -> None:
    sample, expected = SAMPLES[starter.key]
    said = {"text": starter.text, "do": "try", "sample": sample, "sort": "text"}
    client = person(Role.OPERATOR)
    part = client.post("/new/guardrail/", said, headers={"HX-Request": "true"})
    assert (text_of(part).lstrip().startswith('<div id="tried"'), marked(text_of(part))) == (True, expected)
    whole = text_of(client.post("/new/guardrail/", said))
    assert marked(whole) == expected
    assert html.escape(starter.text.splitlines()[-1].strip()) in whole  # what was written is still there
    assert GuardrailPolicy.objects.count() == 0


def test_a_draft_that_is_wrong_is_told_with_its_lines_wherever_it_is_sent() -> None:
    wrong = text().replace("type: pii", "type: pij").replace("patterns:", "pattern:")
    client = person(Role.OPERATOR)
    for do in ("check", "save", "try"):
        sent = {"text": wrong, "do": do, "sample": "keep this", "sort": "text", "tenant": "acme"}
        page = text_of(client.post("/new/guardrail/", sent))
        told = re.findall(r"<li><code>(.*?)</code>.*?Line (\d+)</span> <code>(.*?)</code>", page)
        lines = wrong.splitlines()
        assert told, do
        for path, line, said in told:
            assert path.startswith("spec.rules[")
            assert lines[int(line) - 1].strip() == html.unescape(said)
        assert "keep this" in page
        assert 'value="acme"' in page
    assert GuardrailPolicy.objects.count() == 0


@pytest.mark.usefixtures("policy")
def test_from_a_draft_over_a_canary_to_all_and_back() -> None:
    now = timezone.now()
    for name in ("i-1", "i-2"):
        Worker.objects.create(
            node_id=name,
            kind=NodeKind.PROCESSOR,
            pool="default",
            user="p",
            connected_at=now,
            seen_at=now,
            is_awaited=True,
        )
    client = person(Role.OPERATOR)
    version = GuardrailPolicy.objects.get().version
    checked = text_of(save(client, text("No."), version, do="check"))
    assert "spec.rules[codenames].message" in checked
    assert ConfigRevision.objects.count() == 1
    save(client, text("No."), version)
    page = text_of(client.get(f"{ONE}config/"))
    assert "2 workers (payload processors of every name)." in page
    assert re.search(r"<dt>Tenants</dt><dd>.*research.*team-\*.*</dd>", page)
    assert "Internal names stay here." in text_of(client.get(ONE))  # which is in force still
    assert "2 is the newest" in text_of(client.get(ONE))
    said = {"revision": "2", "comment": "shorter", "canary": "1", "guard": "1"}
    for wrong in ("0", "100", "many", "1e1"):
        refused = client.post(f"{ONE}publish/", {**said, "blocked": wrong})
        assert (refused.status_code, "must be a number of percent" in text_of(refused)) == (422, True)
    assert client.post(f"{ONE}publish/", {**said, "blocked": "12.5 %"}).status_code == 302
    rollout = Rollout.objects.latest("id")
    assert (rollout.stage, rollout.max_error_share, rollout.max_blocked_share) == ("canary", 0.05, 0.125)
    assert (
        "more than 5% of the requests fail or more than 12.5% of the requests are ended by guardrails, "
        "of 20 at least"
    ) in text_of(client.get(f"{ONE}config/"))
    assert "Canary</span>" in text_of(client.get("/guardrails/"))
    order = {"rollout": str(rollout.pk)}
    planned = plans.plan(ADMIN, "baseline", 2, Canary(count=1), KIND)["workers"]
    first, second = sorted(planned, key=lambda each: not each["first"])
    workers.acknowledge(WORKER, first["worker"], "baseline", 2, [], rollout.pk, KIND)
    assert client.post(f"{ONE}rollout/promote/", order).status_code == 302
    workers.acknowledge(WORKER, second["worker"], "baseline", 2, [], rollout.pk, KIND)
    assert "No." in text_of(client.get(ONE))
    assert client.post(f"{ONE}rollout/roll-back/", order).status_code == 302
    assert ConfigRevision.objects.get(number=3).digest == ConfigRevision.objects.get(number=1).digest
    actions = list(AuditEntry.objects.filter(kind=KIND, channel="console").values_list("action", flat=True))
    assert sorted(actions) == ["promote", "publish", "rollback", "update"]


@pytest.mark.usefixtures("policy")
def test_what_is_in_force_is_tried_on_the_summary_and_a_draft_beside_its_text() -> None:
    client = person(Role.OPERATOR)
    changed = text().replace("zebra-[0-9]+", "heron-[0-9]+")
    save(client, changed, GuardrailPolicy.objects.get().version)
    sample = {"sample": "zebra-1 heron-2", "sort": "text"}
    assert marked(text_of(client.post(f"{ONE}try/", sample))) == ["zebra-1"]
    tried = save(client, changed, 1, do="try", **sample)
    assert marked(text_of(tried)) == ["heron-2"]
    assert ConfigRevision.objects.count() == 2
    viewer = person(Role.VIEWER)
    assert marked(text_of(save(viewer, changed, 1, do="try", **sample))) == ["heron-2"]


@pytest.mark.usefixtures("policy")
def test_somebody_elses_change_and_ones_own_are_both_there_and_what_was_to_be_tried_too() -> None:
    client = person(Role.OPERATOR)
    version = GuardrailPolicy.objects.get().version
    save(client, text("Theirs."), version)
    late = save(client, text("Mine."), version, sample="keep this")
    page = text_of(late)
    assert late.status_code == 412
    for said in ("Theirs.", "Mine.", "keep this", "Somebody else has changed this"):
        assert said in page
    assert ConfigRevision.objects.count() == 2


@pytest.mark.usefixtures("policy")
def test_a_policy_is_deleted_by_its_name_and_viewers_change_nothing() -> None:
    viewer = person(Role.VIEWER)
    for path in ("/guardrails/", ONE, f"{ONE}config/", f"{ONE}revisions/1/"):
        page = viewer.get(path)
        assert page.status_code == 200
        assert not re.search(
            r"New policy|>Delete<|Save as a new revision|>Publish<|Change it|Go back", text_of(page)
        )
        assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text_of(page))
    said = {"text": text("x"), "comment": "why", "version": "1", "do": "save", "typed": "baseline"}
    for path in ("/new/guardrail/", f"{ONE}config/", f"{ONE}publish/", f"{ONE}delete/"):
        assert viewer.post(path, said).status_code == 403, path
    assert ConfigRevision.objects.count() == 1
    client = person(Role.OPERATOR)
    version = str(GuardrailPolicy.objects.get().version)
    gone = client.post(f"{ONE}delete/", {"typed": "baseline", "version": version})
    assert (gone["Location"], GuardrailPolicy.objects.count()) == ("/guardrails/", 0)
