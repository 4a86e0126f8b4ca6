"""A real Envoy lets a handler choose the route, refuse a request for its body, and cut a stream off."""

import asyncio
import json

import pytest

from dataplane.extproc.events import EndBody, Proceed, Reject
from dataplane.extproc.exchange import Ending
from tests.dataplane.extproc.gateway import gateway
from tests.dataplane.extproc.vectors.envoy import ENVOY, Message, post, post_chunked, read_message
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is not installed"),
]

FORBIDDEN = b'{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"guardrail"}}'
LAST = b'data: {"error":{"code":"guardrail"}}\n\ndata: [DONE]\n\n'


class Guard:
    """Ends a stream when an event is not to be seen."""

    def __init__(self) -> None:
        self.fed: list[bytes] = []

    def feed(self, chunk: bytes, end: bool) -> bytes:
        self.fed.append(chunk)
        before, found, _ = chunk.partition(b'data: {"n":3}')
        if found:
            raise EndBody(before + LAST)
        return chunk


@pytest.mark.parametrize(("clear", "status"), [(True, 418), (False, 200)])
async def test_routes_are_matched_again_only_when_the_answer_says_so(tmp_path, clear, status):
    decision = Proceed(set_headers=[("x-route", b"other")], clear_route_cache=clear)
    async with gateway(tmp_path) as edge:
        answer = await edge.send("full duplex", post("/echo", b"{}"), decision=decision)
        assert answer.status == status
        assert [seen.headers["x-route"] for seen in edge.upstream.seen] == ["other"] * (not clear)


async def test_request_that_is_refused_when_its_body_has_ended_reaches_no_upstream(tmp_path):
    refuse = Reject(403, FORBIDDEN, [("content-type", b"application/json")], "guardrail")
    chunks = [b'{"prompt":', b'"something', b' bad"}']
    async with gateway(tmp_path) as edge:
        for request in (post("/echo", b"".join(chunks)), post_chunked("/echo", *chunks)):
            answer = await edge.send("full duplex", request, decision=refuse)
            assert (answer.status, answer.headers["content-type"]) == (403, "application/json")
            assert json.loads(answer.body)["error"]["code"] == "guardrail"
            assert edge.made[0].requests[0].body == b"".join(chunks)
            assert edge.upstream.seen == []
            assert await edge.ending() is Ending.REJECTED
        await edge.assert_content()


async def test_stream_that_is_cut_ends_regularly_with_what_the_guard_says(tmp_path):
    async with gateway(tmp_path) as edge:
        guard = Guard()
        request = post("/events", b"{}").replace(b"Connection: close\r\n", b"")
        edge.settings = {"response": Proceed(transform=guard)}
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.envoy.ports["full duplex"])
        try:
            writer.write(request)
            async with asyncio.timeout(PATIENCE_S):
                answer: Message = await read_message(reader)
            events = [b'data: {"n":%d}\n\n' % number for number in range(3)]
            assert answer.body == b"".join(events) + LAST
            assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
            assert await edge.ending() is Ending.NATURAL
            assert edge.made[0].chunks[-1] == (b"", True)
            assert sum(b'{"n":3}' in chunk for chunk in guard.fed) == 1
        finally:
            writer.close()
            await writer.wait_closed()
        await edge.assert_content()
        assert await asyncio.to_thread(edge.envoy.counter, "server_half_closed") == 0
