"""Looks beside the event loop: so many at a time, whoever leaves; and a budget for what waits."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from dataplane.errors import ServiceUnavailableError
from dataplane.extproc.events import EndBody, LaterBody
from ipp.guardrails import answers
from ipp.guardrails import bench as bench_module
from ipp.guardrails.answers import CHARGED_BYTES, FAILED, FULL, AnswerGuard
from ipp.guardrails.bench import MAX_ASIDE, Bench
from ipp.guardrails.lengths import ASIDE_BYTES
from ipp.guardrails.verdicts import UNAVAILABLE, Outcome


async def test_looks_that_are_given_up_count_until_they_end():
    bench, go_on = Bench(), threading.Event()
    started: list[int] = []

    def look() -> int:
        started.append(1)
        go_on.wait(30)
        return len(started)

    waiting = [asyncio.create_task(bench.run(look, 1)) for _ in range(MAX_ASIDE + 2)]
    while len(started) < MAX_ASIDE:  # noqa: ASYNC110 - the threads have no event for it
        await asyncio.sleep(0.001)
    for task in waiting[:MAX_ASIDE]:
        task.cancel()
    await asyncio.wait(waiting[:MAX_ASIDE])
    await asyncio.sleep(0)
    assert len(started) == MAX_ASIDE
    go_on.set()
    await asyncio.gather(*waiting[MAX_ASIDE:])
    assert len(started) == MAX_ASIDE + 2


async def test_what_waits_for_room_is_bounded_and_what_comes_beyond_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(bench_module, "MAX_WAITING_BYTES", 100)
    bench, go_on = Bench(), threading.Event()

    def look() -> bool:
        return go_on.wait(30)

    at_work = [asyncio.create_task(bench.run(look, 1000)) for _ in range(MAX_ASIDE)]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(bench.run(look, size)) for size in (60, 40)]
    await asyncio.sleep(0)
    with pytest.raises(ServiceUnavailableError) as refused:
        await bench.run(look, 1)
    error = json.loads(refused.value.body())["error"]
    assert (refused.value.status, refused.value.retry_after_s, error["code"]) == (503, 1, UNAVAILABLE)
    taken: asyncio.Queue[Outcome] = asyncio.Queue()
    bench.judge(lambda: Outcome(action="pass", body=b""), taken.put_nowait, FAILED, 1)
    assert await asyncio.wait_for(taken.get(), 20) == FULL.outcome()
    go_on.set()
    assert await asyncio.gather(*at_work, *waiting) == [True] * (MAX_ASIDE + 2)
    assert await bench.run(look, 1000)


async def test_one_body_may_always_wait_however_large(monkeypatch):
    monkeypatch.setattr(bench_module, "MAX_WAITING_BYTES", 100)
    bench, go_on = Bench(), threading.Event()
    at_work = [asyncio.create_task(bench.run(lambda: go_on.wait(30), 1)) for _ in range(MAX_ASIDE)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(bench.run(lambda: go_on.wait(30), 1000))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    second = asyncio.create_task(bench.run(lambda: go_on.wait(30), 1000))
    await asyncio.sleep(0)
    assert not second.done()
    go_on.set()
    await asyncio.gather(*at_work, second)


async def test_an_answer_that_cannot_be_judged_is_withheld():
    def fail(body: bytes) -> Outcome:
        raise ZeroDivisionError

    guard = AnswerGuard(fail, None, None, Bench())
    with pytest.raises(LaterBody) as later:
        guard.feed(b"x" * (ASIDE_BYTES + 1), True)
    taken: asyncio.Queue[bytes] = asyncio.Queue()
    later.value.start(taken.put_nowait)
    assert await asyncio.wait_for(taken.get(), 20) == FAILED.body()


def passing(body: bytes) -> Outcome:
    return Outcome(action="pass", body=body)


def test_answers_share_a_budget_that_is_given_back_however_they_end(monkeypatch):
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 4 * CHARGED_BYTES)
    bench = Bench(4 * CHARGED_BYTES)
    piece = b"x" * (2 * CHARGED_BYTES)
    first, second = (AnswerGuard(passing, None, None, bench) for _ in range(2))
    assert first.feed(piece, False) == second.feed(piece, False) == b""
    with pytest.raises(EndBody) as ended:
        second.feed(piece, False)
    assert b"guardrail_unavailable" in ended.value.last
    with pytest.raises(EndBody) as ended:
        first.feed(piece * 2, False)
    assert b"guardrail_unreadable" in ended.value.last
    third = AnswerGuard(passing, None, None, bench)
    assert third.feed(piece, False) == b""
    del third
    fourth = AnswerGuard(passing, None, None, bench, lambda _: False)
    assert fourth.feed(piece, False) == b""
    assert fourth.feed(piece[:1], True) == piece + piece[:1]
    assert bench._left == 4 * CHARGED_BYTES
