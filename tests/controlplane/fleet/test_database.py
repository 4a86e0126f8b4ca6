"""The runner's view of the database: whatever it does, the runner goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError

from controlplane.core import changes
from controlplane.core.errors import InvalidError
from controlplane.fleet.local import database
from controlplane.fleet.local.database import MAX_WAITING_CALLS, Database, SourceError


def answering(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> Database:
    monkeypatch.setattr(changes, "current", call)
    return Database()


async def test_calls_are_answered_on_one_thread_that_is_not_the_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answering(monkeypatch, threading.get_ident)
    first, second = await asked.marker(), await asked.marker()
    assert first == second != threading.get_ident()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("no such table"), "the database refuses: no such table"),
        (InvalidError("too many"), "the control plane refuses: too many"),
    ],
)
async def test_refusals_are_told_and_the_next_call_is_answered(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    answers: list[Exception | None] = [error, None]

    def call() -> int:
        if (refused := answers.pop(0)) is not None:
            raise refused
        return 7

    asked = answering(monkeypatch, call)
    with pytest.raises(SourceError, match=expected):
        await asked.marker()
    assert await asked.marker() == 7


async def test_a_database_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "TIMEOUT_S", 0.01)
    release = threading.Event()
    asked = answering(monkeypatch, release.wait)
    try:
        for _ in range(MAX_WAITING_CALLS + 3):
            with pytest.raises(SourceError, match="the database does not answer"):
                await asked.marker()
    finally:
        release.set()
    monkeypatch.setattr(database, "TIMEOUT_S", 15.0)
    while True:
        try:
            assert await asked.marker() is True
            return
        except SourceError:  # the calls that nobody waits for any more are still being dropped
            await asyncio.sleep(0.01)
