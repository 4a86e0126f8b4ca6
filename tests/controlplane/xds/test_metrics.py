"""What a discovery server counts, and how it says whether it can do its work."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from django.db import DatabaseError

from controlplane.core import changes, tokens
from controlplane.core.models import Change
from controlplane.core.roles import Actor
from controlplane.xds import hub as hubs
from controlplane.xds import resources, workers
from controlplane.xds.hub import Hub, Session
from controlplane.xds.metrics import TYPES, XdsMetrics
from controlplane.xds.nodes import NodeKind
from controlplane.xds.subscriptions import Answer, Subscriptions
from dataplane.xds.messages import POOL_OBJECTS, Node, Refusal, Request, Version
from tests.support.controlplane import WORKER
from tests.support.waiting import until

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/control-plane-metrics.md"


def shown(metrics: XdsMetrics) -> dict[str, float]:
    lines = "".join(metrics.numbers.expose()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_the_reference_has_every_metric_with_its_labels() -> None:
    rows = re.findall(r"^\| `(pointsman_xds_\w+)` \| (\w+) \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    described = Hub().metrics.numbers.describe()
    assert documented == {each.name: (each.kind, each.labels) for each in described}


def test_labels_are_those_of_known_types_whatever_clients_subscribe_to() -> None:
    metrics = XdsMetrics()
    metrics.pushed(POOL_OBJECTS, 10, 2)
    metrics.pushed(POOL_OBJECTS, 5, 1)
    for number in range(3):
        metrics.answered(f"type.example/made.Up{number}", is_refusal=False)
    metrics.answered(POOL_OBJECTS, is_refusal=True)
    found = shown(metrics)
    label = '{type="PoolObjects"}'
    assert [found[f"pointsman_xds_{name}{label}"] for name in ("pushes_total", "push_bytes_total")] == [2, 15]
    assert found[f"pointsman_xds_push_resources_total{label}"] == 3
    assert found[f"pointsman_xds_nacks_total{label}"] == 1
    assert found['pointsman_xds_acks_total{type="other"}'] == 3
    assert len(set(TYPES.values())) == len(TYPES)


def test_streams_are_counted_by_kind_and_answers_by_what_became_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubs, "MAX_GATHERED", 4)
    hub = Hub()
    session = Session(Node("w", "a"), "token", WORKER)
    for audience in session.audiences:
        hub._sessions[audience] = {session, Session(Node("v", "a"), "token", WORKER)}
    gateway = Session(Node("e", "g"), "token", WORKER, NodeKind.GATEWAY)
    hub._sessions[next(iter(gateway.audiences))] = {gateway}
    for _ in range(5):
        hub.answered(session, Answer(POOL_OBJECTS, Version(1, "0" * 32), "", Refusal("no")))
    found = shown(hub.metrics)
    assert found['pointsman_xds_streams_open{kind="picker"}'] == 2
    assert found['pointsman_xds_streams_open{kind="gateway"}'] == 1
    assert found['pointsman_xds_streams_open{kind="processor"}'] == 0
    assert found["pointsman_xds_answers_dropped_total"] == 2
    assert found["pointsman_xds_answers_waiting"] == 3
    assert found['pointsman_xds_nacks_total{type="PoolObjects"}'] == 5


async def test_it_is_ready_while_the_database_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = True

    def current() -> int:
        if broken:
            raise DatabaseError("gone")
        return 7

    monkeypatch.setattr(hubs, "POLL_S", 0.005)
    monkeypatch.setattr(changes, "current", current)
    monkeypatch.setattr(tokens, "last_change", lambda: 0)
    monkeypatch.setattr(resources, "build", lambda _: (7, {}))
    monkeypatch.setattr(workers, "left", lambda _: None)
    hub = Hub()
    assert hub.not_ready() == "the database has not been read yet"
    task = asyncio.create_task(hub.run())

    await until(lambda: hub.not_ready() == "the database fails")
    assert shown(hub.metrics)["pointsman_xds_database_failures_total"] >= 1
    broken = False
    await until(lambda: hub.not_ready() == "")
    assert shown(hub.metrics)["pointsman_xds_change"] == 7
    monkeypatch.setattr(hubs, "SILENT_S", -1.0)
    assert hub.not_ready() == "the database has not answered for 0 s"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await hub.stop()


def test_who_has_not_answered_is_waited_for() -> None:
    session = Session(Node("w", "a"), "token", Actor("w", WORKER.role))
    subscriptions: Subscriptions = session.subscriptions
    subscriptions.hear(Request(POOL_OBJECTS, names=("a",)))
    assert not subscriptions.is_waiting
    subscriptions._by_type[POOL_OBJECTS].under_way = Version(1, "0" * 32)
    assert subscriptions.is_waiting


@pytest.mark.django_db
def test_the_age_of_the_last_changes_is_that_of_the_oldest_of_them() -> None:
    assert (changes.age(0), changes.age(1)) == (None, None)
    changes.bump()
    Change.objects.update(at="2020-01-01T00:00:00Z")
    changes.bump()
    newest, both = changes.age(1), changes.age(2)
    assert newest is not None
    assert both is not None
    assert 0 <= newest < 3600 < both
    assert changes.age(3) is None
