"""The hub over a database that changes, fails, comes back, and goes back in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import pytest
from django.db import DatabaseError

from controlplane.core import changes, tokens
from controlplane.core.roles import Actor, Role
from controlplane.xds import hub as hubs
from controlplane.xds import resources, workers
from controlplane.xds.hub import Hub, Session
from controlplane.xds.nodes import Audience
from controlplane.xds.subscriptions import Answer
from dataplane.xds.messages import (
    PICKER_CONFIG,
    POOL_OBJECTS,
    Node,
    Refusal,
    Request,
    Resource,
    Version,
    digest_of,
)
from tests.support.controlplane import VIEWER, WORKER
from tests.support.waiting import PATIENCE_S, until

KIND = POOL_OBJECTS


class Database:
    """What the hub asks, answered from memory."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = 1
        self.values = {"a": b"1", "b": b"1"}
        self.fails = False
        self.actor: Actor | None = WORKER
        self.said: list[tuple[str, Answer]] = []
        self.gone: list[str] = []
        self.come: list[str] = []
        self.built = 0
        self.tokens_changed = 0
        for module, name, call in (
            (changes, "current", self.current),
            (changes, "raise_to", self.raise_to),
            (changes, "age", lambda count: 3.0 * count),
            (changes, "fold", lambda: None),
            (resources, "build", self.build),
            (tokens, "recognise", lambda *_: None if self.actor is None else (None, self.actor)),
            (tokens, "last_change", lambda: self.tokens_changed),
            (workers, "arrived", lambda *_: None),
            (workers, "joined", self.joined),
            (workers, "sweep", lambda: None),
            (workers, "present", lambda _: None),
            (workers, "prune", lambda: None),
            (workers, "left", self.left),
            (workers, "answered", self.answered),
        ):
            patch.setattr(module, name, call)

    def check(self) -> None:
        if self.fails:
            raise DatabaseError("gone")

    def current(self) -> int:
        self.check()
        return self.number

    def raise_to(self, number: int) -> None:
        self.number = max(self.number, number)

    def build(self, audiences: Collection[Audience]) -> tuple[int, dict[Audience, Any]]:
        self.check()
        self.built += 1
        return self.number, {
            each: {KIND: {each.name: Resource(each.name, self.values.get(each.name, b""))}}
            for each in audiences
        }

    def joined(self, nodes: Collection[str]) -> None:
        self.check()
        self.come += sorted(nodes)

    def answered(self, answers: Sequence[tuple[str, Answer]]) -> None:
        self.check()
        self.said += answers

    def left(self, nodes: Collection[str]) -> None:
        self.check()
        self.gone += sorted(nodes)

    def change(self, **values: bytes) -> None:
        self.values.update(values)
        self.number += 1


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(hubs, "POLL_S", 0.005)
    return Database(monkeypatch)


@pytest.fixture
async def hub(database: Database) -> AsyncIterator[Hub]:
    hub = Hub()
    task = asyncio.create_task(hub.run())
    yield hub
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await hub.stop()


async def joined(hub: Hub, pool: str, node: str = "w", version: str = "") -> Session:
    session = Session(Node(node, pool), "token", WORKER)
    session.subscriptions.hear(Request(KIND, version, names=(pool,)))
    await hub.join(session)
    return session


def taken(hub: Hub, session: Session) -> bytes | None:
    """The value that is due for a session, which accepts it."""
    (snapshot,) = hub.snapshots(session)
    session.wake.clear()
    for response in session.subscriptions.due(snapshot):
        request = Request(KIND, response.version, response.nonce, (session.node.cluster,))
        answer = session.subscriptions.hear(request)
        assert answer is not None
        hub.answered(session, answer)
        return response.resources[0].value
    return None


async def test_a_picker_that_wants_its_configuration_is_noted_once_the_database_can_be_asked(
    hub: Hub, database: Database
) -> None:
    session = await joined(hub, "a")
    hub.heard(session)
    session.subscriptions.hear(Request(PICKER_CONFIG, names=("a",)))
    database.fails = True
    hub.heard(session)
    await asyncio.sleep(0.03)
    assert (database.come, len(hub.snapshots(session))) == ([], 1)
    session.wake.clear()
    database.fails = False
    await asyncio.wait_for(session.wake.wait(), PATIENCE_S)
    assert (database.come, len(hub.snapshots(session))) == (["w"], 2)
    hub.heard(session)
    hub.leave(session)
    assert hub.snapshots(session) == []


async def test_a_change_wakes_the_streams_of_its_pool_alone(hub: Hub, database: Database) -> None:
    one, other = await joined(hub, "a", "w1"), await joined(hub, "b", "w2")
    assert (taken(hub, one), taken(hub, other)) == (b"1", b"1")
    database.change(a=b"2")
    await asyncio.wait_for(one.wake.wait(), PATIENCE_S)
    assert (taken(hub, one), other.wake.is_set(), taken(hub, other)) == (b"2", False, None)


async def test_as_long_as_nothing_changes_nothing_is_read(hub: Hub, database: Database) -> None:
    await joined(hub, "a")
    await until(lambda: database.built >= 1)
    await asyncio.sleep(0.05)  # a stream that joins while it is read is read for once more
    before = database.built
    await asyncio.sleep(0.05)
    assert database.built == before


async def test_a_database_that_fails_takes_nothing_away_and_loses_no_answer(
    hub: Hub, database: Database
) -> None:
    session = await joined(hub, "a")
    database.fails = True
    database.change(a=b"2")
    assert taken(hub, session) == b"1"
    await asyncio.sleep(0.05)
    assert (database.said, session.ended) == ([], "")
    database.fails = False
    await asyncio.wait_for(session.wake.wait(), PATIENCE_S)
    assert taken(hub, session) == b"2"
    await until(lambda: len(database.said) == 2)
    assert [answer.version.number for _, answer in database.said] == [1, 2]


async def test_a_database_from_a_backup_goes_on_from_what_workers_know(hub: Hub, database: Database) -> None:
    known = str(Version(40, digest_of([Resource("a", b"newer")])))
    session = await joined(hub, "a", version=known)
    await until(lambda: database.number == 40)
    await until(lambda: hub.snapshots(session)[0].number == 40)
    assert taken(hub, session) == b"1"


@pytest.mark.parametrize("actor", [None, VIEWER])
async def test_a_token_that_may_not_any_more_ends_its_streams(
    hub: Hub, database: Database, monkeypatch: pytest.MonkeyPatch, actor: Actor | None
) -> None:
    session = await joined(hub, "a")
    monkeypatch.setattr(hubs, "PRESENT_EVERY_S", 0.0)
    await asyncio.sleep(0.05)
    assert session.ended == ""
    database.actor = actor
    await until(lambda: session.ended != "")
    assert session.ended == "the token does not hold any more"


async def test_who_leaves_is_noted_unless_another_stream_of_it_is_there(hub: Hub, database: Database) -> None:
    first, second = await joined(hub, "a"), await joined(hub, "a")
    hub.leave(first)
    await asyncio.sleep(0.05)
    assert database.gone == []
    hub.leave(second)
    await until(lambda: database.gone == ["w"])
    assert (hub.sessions, hub.snapshots(second)) == ([], [])


async def test_answers_that_nobody_takes_are_capped(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "MAX_GATHERED", 4)
    hub, session = Hub(), Session(Node("w", "a"), "token", Actor("w", Role.WORKER))
    for number in range(5):
        hub.answered(session, Answer(KIND, Version(number, "0" * 32), "", Refusal("no")))
    await hub.stop()
    assert [answer.version.number for _, answer in database.said] == [2, 3, 4]


async def test_a_token_that_is_taken_back_ends_its_streams_with_the_change(
    hub: Hub, database: Database
) -> None:
    session = await joined(hub, "a")
    database.change(a=b"1")
    await until(lambda: bool(hub.snapshots(session)) and session.wake.is_set())
    assert session.ended == ""
    database.actor, database.tokens_changed = None, 1
    database.change()
    await until(lambda: session.ended != "")
    assert session.ended == "the token does not hold any more"
