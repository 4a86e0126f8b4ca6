"""Those who are asked and do not answer as they should: never beyond the deadline, and nobody else waits."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import threading

import pytest
from aiohttp import web

from dataplane.extproc.events import LaterBody
from ipp.guardrails.asking import FAILURES_TO_OPEN, MAX_WAITING, REST_S, Breaker, UnansweredError
from ipp.guardrails.masking import Vault
from tests.ipp.guardrails.test_asking import (
    ANSWER,
    answered,
    asked,
    asker,
    completion,
    judge,
    server,
    webhook,
)
from tests.support.guardrail_policies import policy

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
FINE = b'{"flagged": false}'


@contextlib.asynccontextmanager
async def speaker(speak):
    """Somebody who takes a connection and does as ``speak`` says with it; answers the URL and a count."""
    connections: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def take(reader, writer):
        connections.append(1)
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await speak(reader, writer)
        writer.close()

    listening = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/", connections
    finally:
        listening.close()
        for writer in writers:
            writer.close()


async def question(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(size)


async def hang(reader, writer):
    await asyncio.sleep(600)


async def trickle_head(reader, writer):
    for byte in HEAD * 100:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)


async def trickle_body(reader, writer):
    writer.write(HEAD + b"content-length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def trickle_chunks(reader, writer):
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def much(reader, writer):
    writer.write(HEAD + b"content-length: 10485760\r\n\r\n")
    for _ in range(160):
        writer.write(b" " * 65536)
        await writer.drain()


async def without_end(reader, writer):
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


async def garbage(reader, writer):
    writer.write(b"\x00\xff\r\n\r\n" * 10)
    await asyncio.sleep(600)


async def bomb(reader, writer):
    body = gzip.compress(FINE + b" " * 50_000_000, 1)
    writer.write(HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


async def leave(reader, writer):
    pass


async def leave_after_question(reader, writer):
    await question(reader)


async def leave_within_head(reader, writer):
    await question(reader)
    writer.write(HEAD)


async def leave_within_body(reader, writer):
    await question(reader)
    writer.write(HEAD + b"content-length: 100\r\n\r\n" + FINE)


async def redirect(reader, writer):
    await question(reader)
    writer.write(b"HTTP/1.1 308 Go\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")


SPEAKERS = (
    hang,
    trickle_head,
    trickle_body,
    trickle_chunks,
    much,
    without_end,
    garbage,
    bomb,
    leave,
    leave_after_question,
    leave_within_head,
    leave_within_body,
    redirect,
)


@pytest.mark.parametrize("speak", SPEAKERS)
@pytest.mark.parametrize("failure_policy", ["open", "closed"])
async def test_whoever_gives_no_verdict_is_waited_for_until_the_deadline_at_most(speak, failure_policy):
    async with speaker(speak) as (url, connections), asker() as asking:
        rule = webhook(asking, url, timeout="150ms", failure_policy=failure_policy)
        async with asyncio.timeout(20):
            outcome = await asked(rule)
        assert 1 <= len(connections) <= 2
        if failure_policy == "open":
            assert (outcome.action, outcome.verdicts) == ("pass", ())
        else:
            assert (outcome.action, outcome.code, outcome.status) == ("block", "guardrail_unavailable", 503)
            assert [verdict.kind for verdict in outcome.verdicts] == ["unavailable"]
        assert rule.asked._breaker._waiting == 0
        assert rule.asked._breaker._failures == 1


async def test_a_name_that_is_looked_up_for_ever_holds_up_nobody(monkeypatch):
    go_on, real = threading.Event(), socket.getaddrinfo

    def look_up(host, *args, **kwargs):
        if host == "never.example":
            go_on.wait(30)
            raise OSError
        return real("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with server(lambda _: {"flagged": False}) as (url, _), asker() as asking:
        rules = [webhook(asking, f"http://never.example:{port}/", timeout="50ms") for port in range(1, 12)]
        outcomes = await asyncio.gather(*map(asked, rules))
        assert {outcome.code for outcome in outcomes} == {"guardrail_unavailable"}
        other = webhook(asking, url.replace("127.0.0.1", "good.example"), timeout="20s")
        assert (await asked(other)).action == "pass"
        assert await asyncio.to_thread(lambda: True)
        go_on.set()


async def test_nobody_waits_for_the_connections_of_another_rule():
    async def answer(_):
        await asyncio.sleep(60)

    async with (
        server(answer) as (slow, asked_there),
        server(lambda _: {"flagged": False}) as (fast, _),
        asker() as asking,
    ):
        hanging = [webhook(asking, slow, timeout="30s") for _ in range(2)]
        waiting = [asyncio.create_task(asked(rule)) for rule in hanging for _ in range(MAX_WAITING)]
        async with asyncio.timeout(20):
            while len(asked_there) < 2 * MAX_WAITING:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
            assert (await asked(webhook(asking, fast, timeout="20s"))).action == "pass"
            assert (await asked(hanging[0])).code == "guardrail_unavailable"
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert [rule.asked._breaker._waiting for rule in hanging] == [0, 0]


async def test_a_kept_connection_that_was_closed_meanwhile_is_no_failure():
    async def once(reader, writer):
        await question(reader)
        writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(FINE) + FINE)
        await writer.drain()
        await question(reader)  # and then it is gone

    async with speaker(once) as (url, connections), asker() as asking:
        rule = webhook(asking, url, timeout="20s")
        for _ in range(3):
            assert (await asked(rule)).action == "pass"
        assert len(connections) == 3
        assert rule.asked._breaker._failures == 0


@pytest.mark.parametrize("make", [webhook, judge])
async def test_verdicts_in_another_form_are_failures_like_any_other(make):
    async with server(lambda _: completion("sure!")) as (url, questions), asker(url) as asking:
        rule = make(asking, url) if make is webhook else make(asking)
        for _ in range(FAILURES_TO_OPEN + 3):
            assert (await asked(rule)).code == "guardrail_unavailable"
        assert len(questions) == FAILURES_TO_OPEN


def test_one_question_alone_tells_whether_to_go_on():
    now = 0.0
    breaker = Breaker(lambda: now)
    assert [breaker.enter() for _ in range(FAILURES_TO_OPEN + 2)] == [False] * (FAILURES_TO_OPEN + 2)
    for _ in range(FAILURES_TO_OPEN):
        breaker.leave(False)
    now = REST_S - 0.001
    with pytest.raises(UnansweredError, match="not asked for a while"):
        breaker.enter()
    breaker.leave(False)
    now = REST_S
    assert breaker.enter() is True
    breaker.leave(False)
    with pytest.raises(UnansweredError, match="not asked for a while"):
        breaker.enter()
    breaker.leave(None, is_trial=True)
    assert breaker.enter() is True
    breaker.leave(True, is_trial=True)
    assert [breaker.enter(), breaker.enter()] == [False, False]


async def test_nobody_is_told_what_placeholders_of_an_answer_stand_for():
    vault = Vault()
    name = vault.placeholder("email", "ada@example.org")
    body = ANSWER.replace(b"a@b", f"to {name}".encode())
    async with server(lambda _: {"flagged": False}) as (url, questions), asker() as asking:
        guard = policy(webhook(asking, url)).open_stream("json", vault)
        with pytest.raises(LaterBody) as later:
            guard.feed(body, True)
        taken: asyncio.Queue[bytes] = asyncio.Queue()
        later.value.start(taken.put_nowait)
        found = json.loads(await asyncio.wait_for(taken.get(), 20))
    assert found["choices"][0]["message"]["content"] == "to ada@example.org"
    assert [text["text"] for text in questions[0][1]["texts"]] == [f"to {name}"]


async def test_an_answer_with_nothing_to_hide_is_asked_about_as_it_is():
    async with server(lambda _: {"flagged": False}) as (url, _), asker() as asking:
        assert await answered(webhook(asking, url), ANSWER) == ANSWER.replace(b"a@b", b"***")


async def test_the_texts_of_a_large_body_are_found_beside_the_event_loop():
    body = json.dumps({"messages": [{"content": [{"type": "text", "text": "x" * 300_000}]}]}).encode()

    async def answer(asked_about):
        return web.json_response({"flagged": len(asked_about["texts"][0]["text"]) == 300_000})

    async with server(answer) as (url, _), asker() as asking:
        assert (await asked(webhook(asking, url, timeout="20s"), body=body)).code == "guardrail_webhook"
