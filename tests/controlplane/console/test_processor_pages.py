"""Pages of payload processors: from a first draft to going back, and for whoever may only look."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.configs import workers
from controlplane.configs.models import ConfigRevision, ProcessorDocument, Rollout
from controlplane.configs.processors import STARTERS
from controlplane.configs.services import ProcessorConfigService
from controlplane.core.errors import Detail
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.xds.models import Worker
from controlplane.xds.nodes import NodeKind
from dataplane.config.ipp import KIND
from tests.support.console import person, text_of
from tests.support.controlplane import ADMIN, WORKER, processor_config

pytestmark = pytest.mark.django_db

ONE = "/processors/by-model/"


def text(number: float = 2, name: str = "by-model") -> str:
    return yaml.safe_dump(processor_config(number, name))


@pytest.fixture
def document() -> ProcessorDocument:
    found: ProcessorDocument = ProcessorConfigService().create(ADMIN, processor_config())  # type: ignore[assignment]
    return found


def arrives(*names: str) -> None:
    now = timezone.now()
    for name in names:
        Worker.objects.create(
            node_id=name,
            kind=NodeKind.PROCESSOR,
            pool="by-model",
            user="p",
            connected_at=now,
            seen_at=now,
            is_awaited=True,
        )


def answers(worker: str, number: int, *problems: Detail) -> None:
    newest = Rollout.objects.latest("id")
    workers.acknowledge(WORKER, worker, "by-model", number, list(problems), newest.pk, KIND)


def save(client: Client, said: str, version: int, do: str = "save", why: str = "try") -> Any:
    return client.post(f"{ONE}config/", {"text": said, "comment": why, "version": str(version), "do": do})


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.key)
def test_every_starter_is_a_configuration_that_is_taken_as_it_stands(starter: Any) -> None:
    client = person(Role.OPERATOR)
    page = text_of(client.get(f"/new/processor/?from={starter.key}"))
    assert re.findall(r'href="\?from=(\w+)" aria-current', page) == [starter.key]
    said = {"text": starter.text, "comment": "begin"}
    checked = client.post("/new/processor/", {**said, "do": "check"})
    assert (checked.status_code, "This is a valid configuration" in text_of(checked)) == (200, True)
    assert ProcessorDocument.objects.count() == 0
    made = client.post("/new/processor/", {**said, "do": "save"})
    assert made["Location"] == "/processors/default/config/"
    revision = ConfigRevision.objects.get()
    assert (revision.comment, revision.author, Rollout.objects.count()) == ("begin", "operator", 0)
    assert AuditEntry.objects.filter(kind=KIND, channel="console", action="create").count() == 1


def test_a_new_one_with_mistakes_keeps_the_text_and_tells_each_with_its_line() -> None:
    wrong = text().replace("base-model-to-header", "base-modle-to-header")
    answer = person(Role.OPERATOR).post("/new/processor/", {"text": wrong, "do": "save"})
    page = text_of(answer)
    assert (answer.status_code, ProcessorDocument.objects.count()) == (422, 0)
    assert "base-modle-to-header" in page
    told = re.findall(r"<li><code>(.*?)</code>.*?Line (\d+)</span> <code>(.*?)</code>", page)
    lines = wrong.splitlines()
    assert [path for path, *_ in told] == ["plugins[1]"]
    assert [lines[int(line) - 1].strip() for _, line, _ in told] == [said for *_, said in told]


def test_from_a_change_through_a_canary_that_refuses_and_back(document: ProcessorDocument) -> None:
    arrives("i-1", "i-2")
    client = person(Role.OPERATOR)
    assert client.post(f"{ONE}publish/", {"revision": "1", "comment": "first"}).status_code == 302
    answers("i-1", 1)
    answers("i-2", 1)
    checked = text_of(save(client, text(5), document.version, do="check"))
    assert "plugins[base-model-to-header].parameters.headerName" in checked
    assert ConfigRevision.objects.count() == 1
    saved = save(client, text(5), document.version)
    assert saved["Location"] == f"{ONE}config/"
    page = text_of(client.get(f"{ONE}config/"))
    assert "2 workers of by-model." in page
    assert "Stop by itself" in page
    said = {"revision": "2", "comment": "other header", "canary": "1"}
    assert client.post(f"{ONE}publish/", said).status_code == 302
    sent = next(name for name in ("i-1", "i-2") if _is_first(name))
    answers(sent, 2, Detail("plugins[1]", "must be small"))
    page = text_of(client.get(f"{ONE}config/"))
    assert f"{sent} refused it" in page
    assert re.findall(r"<code>(.*?)</code> must be small", page) == ["plugins[1]"]
    assert "Halted" in page
    rollout = str(Rollout.objects.latest("id").pk)
    back = client.post(f"{ONE}rollout/roll-back/", {"rollout": rollout})
    assert back["Location"] == f"{ONE}config/"
    assert ConfigRevision.objects.get(number=3).digest == ConfigRevision.objects.get(number=1).digest
    late = client.post(f"{ONE}rollout/promote/", {"rollout": rollout})
    assert late.status_code == 409
    assert client.post(f"{ONE}rollout/forget/").status_code == 404


def _is_first(name: str) -> bool:
    from controlplane.configs import plans
    from controlplane.configs.rollout import Canary

    found = plans.plan(ADMIN, "by-model", 2, Canary(count=1), KIND)["workers"]
    return any(row["worker"] == name and row["first"] for row in found)


def test_a_revision_shows_what_it_changed_and_can_be_gone_back_to(document: ProcessorDocument) -> None:
    client = person(Role.OPERATOR)
    for version, number in ((1, 5), (2, 7)):
        save(client, text(number), version)
    client.post(f"{ONE}publish/", {"revision": "3", "comment": "third"})
    page = text_of(client.get(f"{ONE}revisions/2/"))
    assert re.findall(r"<li><code>(.*?)</code>", page) == [
        "plugins[base-model-to-header].parameters.headerName"
    ]
    assert "headerName: x-base-5" in page
    rollout = str(Rollout.objects.latest("id").pk)
    client.post(f"{ONE}rollout/roll-back/", {"rollout": rollout, "revision": "2"})
    assert ConfigRevision.objects.get(number=4).digest == ConfigRevision.objects.get(number=2).digest
    assert client.get(f"{ONE}revisions/9/").status_code == 404
    assert client.get(f"{ONE}revisions/{'9' * 30}/").status_code == 404


def test_somebody_elses_change_is_shown_beside_ones_own(document: ProcessorDocument) -> None:
    client = person(Role.OPERATOR)
    save(client, text(5), document.version)
    late = save(client, text(7), document.version)
    page = text_of(late)
    assert (late.status_code, "x-base-5" in page, "x-base-7" in page) == (412, True, True)
    assert ConfigRevision.objects.count() == 2


def test_the_page_says_what_happens_in_which_order_and_who_runs_it(document: ProcessorDocument) -> None:
    arrives("i-1")
    client = person(Role.VIEWER)
    page = text_of(client.get(ONE))
    assert re.findall(r"<h3>(.*?)</h3>", page) == [
        "Before a profile is picked",
        "What picks the profile",
        "Requests, profile default",
    ]
    assert "i-1" in page
    part = text_of(client.get(ONE, headers={"HX-Request": "true"}))
    assert ("i-1" in part, "<html" in part, "<h3>" in part) == (True, False, False)


def test_one_is_deleted_by_its_name_as_it_was_shown(document: ProcessorDocument) -> None:
    client = person(Role.OPERATOR)
    assert client.post(f"{ONE}delete/", {"typed": "by-mode", "version": "1"}).status_code == 422
    save(client, text(5), document.version)
    assert client.post(f"{ONE}delete/", {"typed": "by-model", "version": "1"}).status_code == 412
    assert ProcessorDocument.objects.count() == 1
    gone = client.post(f"{ONE}delete/", {"typed": "by-model", "version": "2"})
    assert (gone["Location"], ProcessorDocument.objects.count()) == ("/processors/", 0)


@pytest.mark.usefixtures("document")
def test_viewers_see_everything_and_change_nothing() -> None:
    client = person(Role.VIEWER)
    for path in ("/processors/", ONE, f"{ONE}config/", f"{ONE}revisions/1/"):
        page = client.get(path)
        assert page.status_code == 200
        assert not re.search(
            r"New configuration|>Delete<|Save as a new revision|>Publish<|Go back", text_of(page)
        )
        assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text_of(page))
    said = {"text": text(9), "comment": "why", "version": "1", "do": "save", "typed": "by-model"}
    for path in (
        *("/new/processor/", f"{ONE}config/", f"{ONE}publish/", f"{ONE}delete/"),
        f"{ONE}rollout/halt/",
    ):
        assert client.post(path, said).status_code == 403, path
    assert (ConfigRevision.objects.count(), Rollout.objects.count()) == (1, 0)
    assert Client().get(ONE)["Location"] == f"/login/?next={ONE}"


def test_a_picker_s_configuration_is_none_of_a_processor() -> None:
    assert person(Role.VIEWER).get("/processors/edge/config/").status_code == 404


def test_the_list_asks_the_database_as_often_for_many_as_for_one() -> None:
    client = person(Role.VIEWER)
    counts = []
    for number in range(2):
        for row in range(4):
            ProcessorConfigService().create(ADMIN, processor_config(name=f"p-{number}-{row}"))
        with CaptureQueriesContext(connection) as captured:
            page = text_of(client.get("/processors/"))
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 8
    assert page.count("Draft</span>") == 8
