"""Drain and stop: running streams finish, what does not finish in time is cancelled, nothing hangs."""

import asyncio
import threading
from collections.abc import Iterator

import grpc
import grpc.aio
import pytest

from dataplane.extproc.health import HealthService, HealthState
from dataplane.extproc.server import ExtProcServer, ServerOptions
from tests.dataplane.extproc.http2_client import PREFACE, settings
from tests.dataplane.extproc.running_server import (
    PATH,
    EchoService,
    Running,
    connect,
    read_until_closed,
    running,
)
from tests.support.waiting import PATIENCE_S

METHOD = PATH.decode()
GREETING = PREFACE + settings()
LOCAL = ServerOptions(host="127.0.0.1", port=0)


class Conversation:
    """A stream that stays open until it is told to end."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target)
        self._end = threading.Event()
        self.call = self.channel.stream_stream(METHOD)(self._requests(), timeout=PATIENCE_S)
        assert next(self.call) == b"hello"

    def _requests(self) -> Iterator[bytes]:
        yield b"hello"
        self._end.wait(PATIENCE_S)
        yield b"bye"

    def end(self) -> list[bytes]:
        self._end.set()
        return list(self.call)

    def close(self) -> None:
        self._end.set()
        self.channel.close()


@pytest.fixture
def echo() -> EchoService:
    return EchoService()


def start_drain(server: Running, timeout_s: float) -> "asyncio.Future[None]":
    return asyncio.run_coroutine_threadsafe(server.server.drain(timeout_s), server.loop)  # type: ignore[return-value]


def test_drain_waits_for_running_streams(echo: EchoService):
    state = HealthState()
    with running(LOCAL, echo.services, health=state) as server:
        conversation = Conversation(server.target)
        drain = start_drain(server, 30)
        server.run(lambda: None)
        assert not state.is_ready
        with pytest.raises(ConnectionRefusedError):
            connect(server.target)
        assert not drain.done()
        assert conversation.end() == [b"bye"]
        assert conversation.call.code() is grpc.StatusCode.OK
        drain.result(20)
        assert server.server.connections == 0
        conversation.close()
    assert [echo.next_event() for _ in range(2)] == ["open", "half_close"]


def test_drain_ends_what_does_not_finish_in_time(echo: EchoService):
    with running(LOCAL, echo.services) as server:
        conversation = Conversation(server.target)
        start_drain(server, 0.1).result(20)
        with pytest.raises(grpc.RpcError) as caught:
            next(conversation.call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "the server stops"
        conversation.close()
        assert server.server.connections == 0
        assert server.server.metrics.streams_open == 0
    assert [echo.next_event() for _ in range(2)] == ["open", "cancel"]


def test_drain_of_idle_connections_does_not_wait(echo: EchoService):
    with running(LOCAL, echo.services) as server:
        with grpc.insecure_channel(server.target) as channel:
            assert list(channel.stream_stream(METHOD)(iter([b"x"]), timeout=PATIENCE_S)) == [b"x"]
            silent = connect(server.target)
            start_drain(server, 30).result(20)
            assert read_until_closed(silent) == b""
            silent.close()
        assert server.server.connections == 0


def test_health_watch_does_not_hold_a_drain_up():
    state = HealthState()
    services = HealthService(state).services()
    with running(LOCAL, services, health=state) as server, grpc.insecure_channel(server.target) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=PATIENCE_S)
        assert next(watch) == b"\x08\x01"
        drain = start_drain(server, 30)
        assert next(watch) == b"\x08\x02"
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        drain.result(20)


def test_stop_during_a_drain_ends_it(echo: EchoService):
    with running(LOCAL, echo.services) as server:
        conversation = Conversation(server.target)
        drain = start_drain(server, 30)
        server.call(server.server.stop())
        drain.result(20)
        assert server.server.connections == 0
        conversation.close()
    assert [echo.next_event() for _ in range(2)] == ["open", "cancel"]


def test_stop_cuts_a_client_that_does_not_read():
    service = EchoService()
    with running(LOCAL, service.services) as server:
        raw = connect(server.target)
        raw.sendall(GREETING)
        raw.recv(1)
        server.call(server.server.stop())
        assert server.server.connections == 0
        raw.close()


async def test_stop_is_safe_before_start_and_more_than_once(echo: EchoService):
    server = ExtProcServer(LOCAL, echo.services)
    await server.stop()
    server = ExtProcServer(LOCAL, echo.services)
    await server.start()
    port = server.port
    await asyncio.gather(server.stop(), server.stop())
    await server.stop()
    assert server.connections == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def test_stop_that_is_cancelled_still_cuts_the_connections(echo: EchoService):
    async def cancelled_stop(server: ExtProcServer) -> None:
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)

    with running(LOCAL, echo.services) as server, connect(server.target) as raw:
        raw.sendall(GREETING)
        assert raw.recv(1)
        server.call(cancelled_stop(server.server))
        read_until_closed(raw)
        server.call(server.server.stop())
        assert server.server.connections == 0
