"""A real Envoy is content with the answers in every body mode: nothing spurious, every byte in its place."""

import asyncio
import json

import pytest

from dataplane.extproc.events import Reject
from dataplane.extproc.exchange import Ending
from tests.dataplane.extproc.gateway import ANSWER, DECISION, MIB, gateway
from tests.dataplane.extproc.vectors.envoy import (
    ENVOY,
    LISTENERS,
    REQUESTS,
    Message,
    post,
    post_chunked,
)
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is not installed"),
]

SEES_BODY = [
    name
    for name, listener in LISTENERS.items()
    if listener.request not in ("NONE", "STREAMED") or listener.nowait
]
UNROUTABLE = {
    ("buffered", "trailers without a body"): 400,
    ("buffered partial", "trailers without a body"): 400,
    ("buffered partial", "trailers both ways"): 413,
}
"""Headers have gone on before there is a body, or a body cannot be told from the part of one."""
HELD_BACK = {
    ("streamed without waiting", "trailers without a body"),
    ("streamed without waiting", "trailers both ways"),
}
"""Envoy shows trailers only after the answer to the headers, which waits for them."""
REFUSE = Reject(429, b'{"error":{}}', [("content-type", b"application/json"), ("x-why", b"full")], "full")


async def test_requests_pass_in_every_mode_with_and_without_their_body_being_read(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in LISTENERS:
            for needs_body in (True, False):
                for what, request in REQUESTS.items():
                    if needs_body and (listener, what) in HELD_BACK:
                        continue
                    context = f"{listener}: {what}, needs_request_body={needs_body}"
                    answer = await edge.send(listener, request, needs_request_body=needs_body)
                    if needs_body and (listener, what) in UNROUTABLE:
                        assert answer.status == UNROUTABLE[listener, what], context
                        assert edge.upstream.seen == []
                        continue
                    assert answer.status == (204 if what == "response without a body" else 200), context
                    assert answer.headers["x-went-into-resp-headers"] == "true", context
                    assert await edge.ending() is Ending.NATURAL, context
                    (seen,) = edge.upstream.seen
                    assert seen.headers["x-picked"] == "10.0.0.1:8000", context
                    assert_passed(what, seen, answer, context)
        await edge.assert_content()


def assert_passed(what: str, seen: Message, answer: Message, context: str) -> None:
    if what == "body":
        assert seen.body == answer.body == b'{"model":"a"}', context
    elif what == "trailers both ways":
        assert seen.body == b"hello", context
        assert seen.trailers == {"x-sum": "1"}, context
        assert (answer.body, answer.trailers) == (b"abcde", {"x-end": "1"}), context
    elif what == "no body":
        assert answer.body == b'{"data":[]}', context


def body_of(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


SIZES = [0, 1, 62_000, 62_001, 65_536, 4 * MIB - 1, 4 * MIB + 1]


async def test_bodies_of_any_size_arrive_identical_both_ways(tmp_path):
    async with gateway(tmp_path) as edge:
        for size in SIZES:
            body = body_of(size)
            halves = [half for half in (body[: size // 2], body[size // 2 :]) if half]
            for request in (post("/echo", body), post_chunked("/echo", *halves)):
                for listener in (
                    "full duplex",
                    "full duplex with metadata",
                    "streamed without waiting",
                    "none",
                ):
                    if listener == "streamed without waiting" and size > MIB:
                        continue  # Envoy waits for answers when this much is unanswered
                    answer = await edge.send(listener, request)
                    (seen,) = edge.upstream.seen
                    context = f"{listener}: {size}"
                    assert seen.body == body, context
                    assert answer.body == (body or b'{"data":[]}'), context
                    assert await edge.ending() is Ending.NATURAL, context
                    if listener != "none":
                        assert edge.made[0].requests[0].body == body, context
        await edge.assert_content()


async def test_body_past_the_cap_is_413_whether_announced_or_not(tmp_path):
    async with gateway(tmp_path) as edge:
        body = body_of(8 * MIB + 1)
        for request in (post("/echo", body), post_chunked("/echo", body)):
            answer = await edge.send("full duplex", request)
            assert answer.status == 413
            assert json.loads(answer.body)["error"]["code"] == "request_too_large"
            assert answer.headers["content-type"] == "application/json"
            assert edge.upstream.seen == []
            assert await edge.ending() is Ending.REJECTED
        await edge.assert_content()


async def test_rejection_replaces_the_response_at_every_point(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in LISTENERS:
            for settings in (
                {"decision": REFUSE, "needs_request_body": False},
                {"decision": REFUSE, "needs_request_body": True},
                {"response": REFUSE},
            ):
                answer = await edge.send(listener, REQUESTS["body"], **settings)
                assert (answer.status, answer.body) == (429, REFUSE.body), listener
                assert answer.headers["content-type"] == "application/json"
                assert answer.headers["x-why"] == "full"
                assert len(edge.upstream.seen) == ("response" in settings), listener
                assert await edge.ending() is Ending.REJECTED, listener
        await edge.assert_content()


async def test_decision_can_come_late(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in LISTENERS:
            sending = asyncio.create_task(edge.send(listener, REQUESTS["body"], decision=None))
            async with asyncio.timeout(PATIENCE_S):
                while not (edge.made and edge.made[0].requests):  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.02)
            edge.made[0].resume(DECISION)
            assert (await sending).status == 200, listener
            (seen,) = edge.upstream.seen
            assert seen.body == b'{"model":"a"}', listener
            assert seen.headers["x-picked"] == "10.0.0.1:8000", listener
            assert await edge.ending() is Ending.NATURAL, listener
        await edge.assert_content()


async def test_reply_of_envoy_itself_overtakes_the_decision(tmp_path):
    """More than Envoy buffers: it answers 413 and shows that answer while the body is still awaited."""
    async with gateway(tmp_path) as edge:
        answer = await edge.send("buffered", post_chunked("/echo", *[body_of(40_000)] * 50))
        assert answer.status == 413
        assert edge.upstream.seen == []
        assert await edge.ending() is Ending.NATURAL
        assert edge.made[0].requests == []
        assert [response.status for response in edge.made[0].responses] == [413]
        await edge.assert_content()


async def test_client_that_leaves_ends_the_exchange(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in SEES_BODY:
            head, _, _ = post("/echo", body_of(1000)).partition(b"\r\n\r\n")
            edge.made.clear()
            edge.settings = {"decision": DECISION, "response": ANSWER}
            _, writer = await asyncio.open_connection("127.0.0.1", edge.envoy.ports[listener])
            writer.write(head + b"\r\n\r\nonly a part")
            async with asyncio.timeout(PATIENCE_S):
                while not edge.made:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.005)
            writer.close()
            assert await edge.ending() is Ending.DISCONNECT, listener
            assert edge.made[0].requests == []


@pytest.mark.parametrize("listener", ["full duplex", "streamed", "none"])
async def test_broken_upstream_and_client_that_leaves_cannot_be_told_apart(tmp_path, listener):
    """After the head of a response Envoy says nothing of why it ends: nobody can be blamed for it."""
    async with gateway(tmp_path) as edge:
        edge.settings = {"decision": DECISION, "response": ANSWER}
        told = []
        for path in ("/broken", "/endless"):
            edge.made.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", edge.envoy.ports[listener])
            writer.write(post(path, b"{}"))
            async with asyncio.timeout(PATIENCE_S):
                await reader.readuntil(b"abc")
                if path == "/broken":
                    edge.upstream.may_break.set()
                    assert not (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()
            await writer.wait_closed()
            ending = await edge.ending()
            (made,) = edge.made
            told.append((ending, made.chunks, [response.status for response in made.responses]))
        assert told[0] == told[1]
        assert told[0][0] is (Ending.NATURAL if listener == "none" else Ending.DISCONNECT)
