"""The clients of the routing benchmark against a small server."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.routing_load import Clients, Outcome, Usage, read_usage
from benchmarks.routing_workload import Workload, arrivals

WORKLOAD = Workload(
    groups=2, system_tokens=50, question_tokens=10, output_tokens=3, rate=100.0, seconds=0.1, warmup_s=0.0
)
TEXT = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":60,"completion_tokens":3,"total_tokens":63,'
    b'"prompt_tokens_details":{"cached_tokens":48}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("tail", "usage"),
    [
        (TEXT + USAGE + DONE, (60, 48)),
        (USAGE[-20:] + USAGE + DONE, (60, 48)),
        (b'data: {"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\ndata: [DONE]\n\n', (7, None)),
        (TEXT + USAGE, None),
        (TEXT + DONE, None),
        (b"data: {oops\n\n" + DONE, None),
        (DONE, None),
        (b"", None),
    ],
    ids=["details", "tail", "no-details", "cut-off", "no-usage", "no-json", "no-event", "empty"],
)
def test_usage_is_read_from_the_end_of_a_complete_stream(tail: bytes, usage: tuple[int, int | None] | None):
    found = read_usage(tail)
    if usage is None:
        assert found is None
    else:
        assert isinstance(found, Usage)
        details = found.prompt_tokens_details
        assert (found.prompt_tokens, details.cached_tokens if details else None) == usage


async def outcomes(handler, drain_s: float = 5.0) -> list[Outcome]:
    application = web.Application()
    application.router.add_post("/v1/chat/completions", handler)
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        url = str(server.make_url("/v1/chat/completions"))
        return await Clients(WORKLOAD, url, "m", session).run(drain_s)


async def stream(request: web.Request, *events: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for event in events:
        await response.write(event)
    return response


async def test_every_arrival_is_sent_and_its_usage_noted():
    bodies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return await stream(request, TEXT, USAGE, DONE)

    found = await outcomes(handler)
    assert sorted(one.at_s for one in found) == [one.at_s for one in arrivals(WORKLOAD)]
    assert {(one.prompt_tokens, one.cached_tokens, one.completion_tokens, one.error) for one in found} == {
        (60, 48, 3, "")
    }
    assert all(0 < one.ttft_s <= one.ended_s for one in found)
    assert {(body["model"], body["max_tokens"], body["stream"]) for body in bodies} == {("m", 3, True)}
    assert len({json.dumps(body["messages"][1]) for body in bodies}) == len(found)
    assert len({json.dumps(body["messages"][0]) for body in bodies}) == 2


async def test_refusals_and_broken_streams_are_errors():
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=429)

    async def cut_off(request: web.Request) -> web.StreamResponse:
        return await stream(request, TEXT)

    assert {one.error for one in await outcomes(refuse)} == {"status 429"}
    assert {one.error for one in await outcomes(cut_off)} == {"a stream without usage"}


async def test_answers_that_take_too_long_are_given_up():
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    found = await outcomes(hang, drain_s=0.05)
    assert {one.error for one in found} == {"unfinished after 0.05 s"}
    assert len(found) == len(list(arrivals(WORKLOAD)))
