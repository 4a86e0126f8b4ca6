"""The pages on which a configuration is changed, published, watched and gone back on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.configs import plans, workers
from controlplane.configs.models import ConfigDocument, ConfigRevision, Rollout
from controlplane.configs.rollout import Canary
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.fleet.simulated import create_simulated
from controlplane.xds.models import Worker
from tests.support.console import config_text, person, text_of
from tests.support.controlplane import ADMIN, WORKER

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> None:
    create_simulated(ADMIN, "edge", ["llama"], 2)


def applied(worker: str, document: str, number: int) -> None:
    """A worker runs the revision that the newest rollout brings."""
    newest = Rollout.objects.filter(document__name=document).latest("id")
    workers.acknowledge(WORKER, worker, document, number, [], newest.pk)


def save(client: Client, text: str, version: int, do: str = "save", why: str = "try") -> Any:
    return client.post(
        "/pools/edge/config/", {"text": text, "comment": why, "version": str(version), "do": do}
    )


def stage() -> tuple[int, str]:
    rollout = ConfigDocument.objects.get(name="edge").rollouts.select_related("revision").latest("id")
    return rollout.revision.number, rollout.stage


@pytest.mark.usefixtures("pool")
def test_a_weight_goes_through_a_canary_to_all_and_back() -> None:
    document = ConfigDocument.objects.get(name="edge")
    now = timezone.now()
    for name in ("edge-1", "edge-2"):
        Worker.objects.create(
            node_id=name, pool="edge", user="fleet", connected_at=now, seen_at=now, is_awaited=True
        )
    client = person(Role.OPERATOR)
    saved = save(client, config_text(9), document.version)
    assert (saved.status_code, saved["Location"]) == (302, "/pools/edge/config/")
    page = text_of(client.get("/pools/edge/config/"))
    assert "schedulingProfiles[default].plugins[queue-scorer].weight" in page
    assert client.post("/pools/edge/publish/", {"canary": "1", "revision": "2"}).status_code == 422
    assert not Rollout.objects.filter(revision__number=2).exists()
    said = {"canary": "1", "revision": "2", "comment": "queues matter more"}
    assert client.post("/pools/edge/publish/", said).status_code == 302
    assert stage() == (2, "canary")
    entry = AuditEntry.objects.filter(action="publish").first()
    assert entry is not None
    assert entry.after["comment"] == "queues matter more"
    [first] = [
        row["worker"] for row in plans.plan(ADMIN, "edge", 2, Canary(count=1))["workers"] if row["first"]
    ]
    applied(first, "edge", 2)
    rollout = str(document.rollouts.latest("id").pk)
    assert client.post("/pools/edge/rollout/promote/", {"rollout": rollout}).status_code == 302
    assert stage() == (2, "rolling")
    assert client.post("/pools/edge/rollout/promote/", {"rollout": rollout}).status_code == 409
    assert client.post("/pools/edge/rollout/roll-back/", {"rollout": rollout}).status_code == 302
    assert ConfigRevision.objects.get(number=3).digest == ConfigRevision.objects.get(number=1).digest


@pytest.mark.usefixtures("pool")
def test_checking_keeps_nothing_and_tells_every_mistake_with_its_path() -> None:
    document = ConfigDocument.objects.get(name="edge")
    client = person(Role.OPERATOR)
    good = save(client, config_text(9), document.version, do="check")
    assert (good.status_code, "This is a valid configuration" in text_of(good)) == (200, True)
    bad = save(client, config_text(9).replace("queue-scorer", "queue-scorrer"), document.version)
    assert (bad.status_code, re.findall(r"<li><code>(.*?)</code>", text_of(bad))) == (
        422,
        ["plugins[0]"],
    )
    broken = save(client, "a: [", document.version)
    assert (broken.status_code, "line 1" in text_of(broken)) == (422, True)
    silent = save(client, config_text(9), document.version, why=" ")
    assert (silent.status_code, "say why" in text_of(silent)) == (422, True)
    assert ConfigRevision.objects.count() == 1


@pytest.mark.usefixtures("pool")
def test_a_change_to_what_somebody_else_has_changed_shows_both() -> None:
    version = ConfigDocument.objects.get(name="edge").version
    client = person(Role.OPERATOR)
    save(client, config_text(5), version)
    late = save(client, config_text(7), version)
    page = text_of(late)
    assert late.status_code == 412
    assert "Somebody else has changed this" in page
    assert "weight: 5" in page
    assert "weight: 7" in page
    assert ConfigRevision.objects.count() == 2
    again = save(client, config_text(7), int(re.search(r'name="version" value="(\d+)"', page)[1]))  # type: ignore[index]
    assert (again.status_code, ConfigRevision.objects.count()) == (302, 3)


@pytest.mark.usefixtures("pool")
def test_a_rollout_is_asked_for_until_it_ends_and_its_end_brings_what_follows() -> None:
    now = timezone.now()
    Worker.objects.create(
        node_id="edge-1", pool="edge", user="fleet", connected_at=now, seen_at=now, is_awaited=True
    )
    client = person(Role.OPERATOR)
    save(client, config_text(9), ConfigDocument.objects.get(name="edge").version)
    part = text_of(client.get("/pools/edge/config/", headers={"HX-Request": "true"}))
    assert 'id="rollout"' in part
    applied("edge-1", "edge", 1)
    client.post("/pools/edge/publish/", {"revision": "2", "comment": "try it"})
    save(client, config_text(5), ConfigDocument.objects.get(name="edge").version)
    asked = text_of(client.get("/pools/edge/config/", headers={"HX-Request": "true"}))
    assert ('hx-trigger="every 2s"' in asked, "hx-swap-oob" in asked) == (True, False)
    assert 'action="/pools/edge/publish/"' not in text_of(client.get("/pools/edge/config/"))
    applied("edge-1", "edge", 2)
    ended = text_of(client.get("/pools/edge/config/", headers={"HX-Request": "true"}))
    assert "hx-trigger" not in ended
    assert re.findall(r'id="(\w+)"[^>]* hx-swap-oob="true"', ended) == ["publish", "revisions"]
    assert 'action="/pools/edge/publish/"' in ended
