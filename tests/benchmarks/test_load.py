"""The load generator's counting and its connections."""

import asyncio

import pytest

from benchmarks.http1 import Message
from benchmarks.load import DUE_LIMIT, Load, http_request, keep_connected, keep_pace
from benchmarks.upstream import ANSWER, Connection, Endpoint
from tests.support.waiting import until

OK = b"HTTP/1.1 200 OK"


class FakeClient:
    """Notes since when its requests count."""

    def __init__(self) -> None:
        self.sent: list[float] = []

    def send(self, since: float) -> None:
        self.sent.append(since)


def test_requests_rotate():
    load = Load([b"a", b"b"], 0)
    assert [load.take_request() for _ in range(3)] == [b"a", b"b", b"a"]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message(OK, 7), None),
        (Message(OK, 6), "body of 6 bytes instead of 7"),
        (Message(b"HTTP/1.1 503 Service Unavailable", 7), "status 503"),
    ],
)
def test_status_and_length_are_checked(message: Message, complaint: str | None):
    assert Load([b""], 7).complaint(message) == complaint


def test_closed_loop_sends_at_once():
    load, client = Load([b""], 0), FakeClient()
    load.becomes_idle(client)
    assert len(client.sent) == 1


def test_paced_requests_take_idle_connections_and_wait_for_them():
    load, first, second = Load([b""], 0, paced=True), FakeClient(), FakeClient()
    load.becomes_idle(first)
    assert first.sent == []
    load.falls_due()
    assert len(first.sent) == 1
    load.falls_due()
    due = list(load.due)
    load.becomes_idle(second)
    assert second.sent == due
    assert (len(load.idle), len(load.due)) == (0, 0)


def test_due_requests_wait_up_to_a_limit():
    load = Load([b""], 0, paced=True)
    for _ in range(DUE_LIMIT):
        load.falls_due()
    assert (len(load.due), dict(load.errors)) == (DUE_LIMIT, {})
    load.falls_due()
    assert (len(load.due), dict(load.errors)) == (DUE_LIMIT, {"not sent: all connections busy": 1})


@pytest.mark.parametrize("paced", [False, True])
async def test_answers_are_counted_over_real_connections(paced: bool):
    loop = asyncio.get_running_loop()
    endpoint = Endpoint(sse_chunks=0, sse_interval_s=0.0)
    server = await loop.create_server(lambda: Connection(endpoint, loop), "127.0.0.1", 0)
    load = Load([http_request(b"{}", stream=False)], len(ANSWER), paced=paced)
    tasks = [asyncio.create_task(keep_connected(load, *server.sockets[0].getsockname())) for _ in range(2)]
    if paced:
        tasks.append(asyncio.create_task(keep_pace(load, 2000.0, 1)))
    await until(lambda: len(load.latencies_us) >= 20)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.close()
    await server.wait_closed()
    report = load.report()
    assert report.errors == {}
    assert report.payload_bytes == report.requests * len(ANSWER)
    assert sum(count for _, count in report.latency_histogram_us) == report.requests


async def test_refused_connections_count_as_errors():
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    load = Load([b""], 0)
    task = asyncio.create_task(keep_connected(load, *address))
    await until(lambda: load.errors)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert set(load.errors) == {"connect: Connection refused"}


def test_window_forgets_what_came_before():
    load = Load([b""], 0)
    load.latencies_us.append(5.0)
    load.errors["status 500"] += 1
    load.begin_window()
    report = load.report()
    assert (report.requests, report.errors) == (0, {})


def test_request_is_what_a_client_sends():
    request = http_request(b'{"a":1}', stream=True)
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/chat/completions HTTP/1.1"
    assert {b"accept: text/event-stream", b"content-length: 7"} <= set(lines)
    assert body == b'{"a":1}'
