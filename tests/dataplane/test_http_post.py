"""POST over HTTP/1.1: framing, kept connections, and servers that break the rules."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dataplane.http_post import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, HttpError, HttpPoster

OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"content-length: 2\r\n\r\nhi"


class Server:
    """Answers each request with the next bytes; b"" closes without an answer."""

    def __init__(self, answers: Sequence[bytes], *, closes: bool) -> None:
        self._answers = iter(answers)
        self._closes = closes
        self.connections = 0
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = next(self._answers)
                writer.write(answer)
                if self._closes or not answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *answers: bytes, closes: bool = False, path: str = ""
) -> AsyncIterator[tuple[HttpPoster, Server]]:
    """A poster and the server it asks."""
    server = Server(answers, closes=closes)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    poster = HttpPoster(f"http://127.0.0.1:{server.port}{path}")
    try:
        yield poster, server
    finally:
        await poster.close()
        listening.close()
        await listening.wait_closed()


async def test_a_request_and_its_answer():
    async with serving(PLAIN, path="/base/") as (poster, server):
        assert await poster.post("/v1/x", b'{"a":1}') == (200, b"hi")
        assert server.requests == [
            f"POST /base/v1/x HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\naccept: application/json\r\n"
            "content-type: application/json\r\ncontent-length: 7\r\n\r\n"
            '{"a":1}'.encode()
        ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK + b"Content-Length:0\r\n\r\n", (200, b"")),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nt: 1\r\n\r\n",
            (200, b"abc0123456789"),
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 1\r\n\r\nx", (404, b"x")),
    ],
    ids=["nothing", "chunks", "interim"],
)
async def test_answers_are_framed_and_their_connection_is_kept(answer: bytes, expected: tuple[int, bytes]):
    async with serving(answer, answer) as (poster, server):
        for _ in range(2):
            assert await poster.post("/", b"{}") == expected
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        OK + b"Connection: close\r\ncontent-length: 2\r\n\r\nhi",
    ],
    ids=["until the end", "HTTP/1.0", "close"],
)
async def test_a_connection_that_is_not_to_be_kept_is_not(answer: bytes):
    async with serving(answer, answer, closes=True) as (poster, server):
        for _ in range(2):
            assert await poster.post("/", b"{}") == (200, b"hi")
        assert server.connections == 2


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced():
    async with serving(PLAIN, b"", PLAIN) as (poster, server):
        assert await poster.post("/", b"{}") == (200, b"hi")
        assert await poster.post("/", b"{}") == (200, b"hi")
        assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "the connection was closed before an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "it begins with b'SSH-2.0-OpenSSH"),
        (OK + b"content-length: 5\r\n\r\nhi", "the answer is broken"),
        (OK + b"content-length: -1\r\n\r\n", "bytes long, more than"),
        (OK + b"content-length: %d\r\n\r\n" % (MAX_ANSWER_BYTES + 1), "bytes long, more than"),
        (OK + b"transfer-encoding: chunked\r\n\r\n2\r\nabc\r\n", "longer than it says"),
        (OK + b"transfer-encoding: chunked\r\n\r\nz\r\n", "the answer is broken"),
        (OK + b"transfer-encoding: chunked\r\n\r\n7fffffff\r\n", "it is longer than"),
        (OK + b"x: y\r\n" * (MAX_HEAD_BYTES // 6 + 1), "its head is longer than"),
        (OK + b"x: " + b"y" * MAX_HEAD_BYTES * 2, "the answer is broken"),
        (b"HTTP/1.1 103 Early\r\n\r\n" * 20, "it never comes"),
    ],
)
async def test_what_is_no_answer_is_an_error_and_the_connection_is_given_up(answer: bytes, says: str):
    async with serving(answer, PLAIN, closes=True) as (poster, server):
        with pytest.raises(HttpError, match=says):
            await poster.post("/", b"{}")
        assert await poster.post("/", b"{}") == (200, b"hi")
        assert server.connections == 2


async def test_a_server_that_is_not_there_is_an_error():
    async with serving() as (poster, server):
        port = server.port
    with pytest.raises(OSError, match="Connect call failed"):
        await HttpPoster(f"http://127.0.0.1:{port}").post("/", b"{}")
    with pytest.raises(HttpError, match="the client is closed"):
        await poster.post("/", b"{}")


async def test_questions_at_once_have_connections_of_their_own_and_later_ones_use_them():
    async with serving(*[PLAIN] * 60) as (poster, server):
        assert await asyncio.gather(*(poster.post("/", b"{}") for _ in range(40))) == [(200, b"hi")] * 40
        assert server.connections == 16
