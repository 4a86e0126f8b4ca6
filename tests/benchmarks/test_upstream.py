"""The upstream of the ext_proc benchmark, over a real socket."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from benchmarks.http1 import MessageReader
from benchmarks.upstream import ANSWER, SSE_CHUNK, SSE_END, Connection, Endpoint
from tests.support.waiting import until

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"
STREAM = b"POST /v1/chat/completions HTTP/1.1\r\naccept: text/event-stream\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[Endpoint, asyncio.StreamReader, asyncio.StreamWriter]]:
    loop = asyncio.get_running_loop()
    shared = Endpoint(sse_chunks=3, sse_interval_s=0.0)
    server = await loop.create_server(lambda: Connection(shared, loop), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield shared, reader, writer
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and raw rest of the next answer."""
    boundaries = MessageReader()
    raw = b""
    while True:
        data = await reader.read(65536)
        assert data, "the connection ended"
        raw += data
        if messages := boundaries.feed(data):
            return messages[0].head, raw[len(messages[0].head) + 4 :]


async def test_chat_gets_the_fixed_answer(endpoint):
    _, reader, writer = endpoint
    writer.write(CHAT)
    head, body = await read_message(reader)
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json")
    assert body == ANSWER


async def test_stream_sends_every_chunk_and_the_end(endpoint):
    shared, reader, writer = endpoint
    writer.write(STREAM)
    head, body = await read_message(reader)
    assert b"text/event-stream" in head
    assert (body.count(SSE_CHUNK), body.count(SSE_END)) == (3, 1)
    assert shared.running == 0


async def test_client_that_leaves_ends_its_stream(endpoint):
    shared, reader, writer = endpoint
    shared.sse_interval_s = 3600.0
    writer.write(STREAM)
    await reader.readuntil(b"\r\n\r\n")
    assert shared.running == 1
    writer.close()
    await writer.wait_closed()
    await until(lambda: not shared.running)


async def test_metrics_tell_the_running_streams(endpoint):
    shared, reader, writer = endpoint
    shared.running = 5
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
    _, body = await read_message(reader)
    assert b'vllm:num_requests_running{engine="0",model_name="bench"} 5.0\n' in body


async def test_other_paths_do_not_exist(endpoint):
    _, reader, writer = endpoint
    writer.write(b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n")
    head, _ = await read_message(reader)
    assert head.startswith(b"HTTP/1.1 404 ")


async def test_garbage_closes_the_connection(endpoint):
    _, reader, writer = endpoint
    writer.write(b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n")
    assert await reader.read() == b""
