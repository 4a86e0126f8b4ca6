"""What comes back, seen from outside: bodies untouched, usage counted however it is cut, clean headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import (
    Pod,
    Site,
    removed_headers,
    request_body,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
    set_headers,
    streamed,
)

pytestmark = pytest.mark.integration

COMPLETION = {"model": "my-model", "prompt": "test"}
SSE = ("content-type", "text/event-stream")
USAGE = b'data: {"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}\n\n'
DONE = b"data: [DONE]\n\n"


async def respond(site: Site, *messages: Any, path: str = "/v1/completions", body: Any = COMPLETION) -> Any:
    """A request and this response to it; what is said to the response."""
    asked = (request_headers(path=path), request_body(body, end=True))
    answers = await site.converse(*asked, *messages)
    return [answer for answer in answers if answer.WhichOneof("response").startswith("response")]


async def test_a_response_in_two_chunks_passes_and_its_usage_counts(tmp_path: Path) -> None:
    document = json.dumps(
        {"model": "my-model", "usage": {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}}
    ).encode()
    async with Site(tmp_path, Pod()) as site:
        answers = await respond(
            site,
            response_headers(("content-type", "application/json")),
            response_body(document[:40]),
            response_body(document[40:], end=True),
        )

        sent, ends = streamed(answers, "response_body")
        assert sent == document
        assert ends.count(True) == 1
        assert ends[-1]
        assert await site.sample("llm_d_epp_request_input_tokens_sum") == 7
        assert await site.sample("llm_d_epp_request_output_tokens_sum") == 10


@pytest.mark.parametrize(
    "chunks",
    [
        (b"data: {}\n\n", USAGE + DONE, b""),
        (USAGE, DONE),
        (USAGE[:25], USAGE[25:60], USAGE[60:] + DONE),
    ],
    ids=["usage with the end", "usage before the end", "usage in pieces"],
)
async def test_usage_of_a_stream_counts_however_it_is_cut(tmp_path: Path, chunks: tuple[bytes, ...]) -> None:
    async with Site(tmp_path, Pod()) as site:
        bodies = [response_body(chunk, end=at == len(chunks)) for at, chunk in enumerate(chunks, 1)]
        answers = await respond(site, response_headers(SSE), *bodies)

        sent, ends = streamed(answers, "response_body")
        assert sent == b"".join(chunks)
        assert len(ends) == len(chunks)
        assert await site.sample("llm_d_epp_request_input_tokens_sum") == 7


async def test_usage_of_an_anthropic_stream_is_merged_from_its_events(tmp_path: Path) -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 4}}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 5}}
    events = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in (start, delta)]
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with Site(tmp_path, Pod()) as site:
        await respond(
            site,
            response_headers(SSE),
            response_body(events[0]),
            response_body(events[1], end=True),
            path="/v1/messages",
            body=body,
        )
        assert await site.sample("llm_d_epp_request_output_tokens_sum") == 5
        assert await site.sample("llm_d_epp_request_input_tokens_sum") == 13


async def test_control_headers_of_a_server_do_not_reach_the_client(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        (answer,) = await respond(
            site,
            response_headers(("x-gateway-destination-endpoint", "10.1.1.1:1"), ("content-length", "5")),
        )
        assert removed_headers(answer) == {"x-gateway-destination-endpoint"}
        assert set_headers(answer) == {"x-went-into-resp-headers": "true"}


async def test_trailers_follow_a_body_that_did_not_end(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        answers = await respond(
            site,
            response_headers(("content-type", "application/grpc")),
            response_body(b"frame"),
            response_trailers(("grpc-status", "0")),
        )
        kinds = [answer.WhichOneof("response") for answer in answers]
        assert kinds == ["response_headers", "response_body", "response_trailers"]
        assert streamed(answers, "response_body") == (b"frame", [False])


async def test_a_stream_that_begins_with_a_response_passes(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        answers = await site.converse(response_headers(), response_body(b"anything", end=True))
        assert streamed(answers, "response_body") == (b"anything", [True])


async def test_the_booking_follows_the_server_that_served(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(3), Pod(0)) as site:
        await respond(site, response_headers(served=site.key(0)), response_body(b"{}", end=True))
        (decision,) = json.loads(await site.page("/debug/decisions"))["decisions"]
        assert decision["response"]["served"] == site.key(0)
        assert site.picker.table.inflight.sum() == 0
