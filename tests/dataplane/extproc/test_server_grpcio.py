"""A real gRPC client, blocking and asyncio, against the server over TCP, TLS and a Unix socket."""

import ssl
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from dataplane.extproc.http2 import Limits
from dataplane.extproc.server import ServerOptions
from dataplane.server_tls import TlsOptions
from tests.dataplane.extproc.running_server import PATH, EchoService, Running, running
from tests.support.waiting import PATIENCE_S

METHOD = PATH.decode()
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
MEBIBYTE = 1024 * 1024


@pytest.fixture
def echo() -> EchoService:
    return EchoService()


@pytest.fixture(params=["tcp", "tls", "unix"])
def transport(request: pytest.FixtureRequest, echo: EchoService, tmp_path) -> Iterator[tuple[str, Any]]:
    """Target of a running server and the credentials to reach it, None for none."""
    path = str(tmp_path / "ext_proc.sock")
    options = {
        "tcp": ServerOptions(host="127.0.0.1", port=0),
        "tls": ServerOptions(host="127.0.0.1", port=0, tls=TlsOptions()),
        "unix": ServerOptions(port=None, unix_path=path),
    }[request.param]
    with running(options, echo.services) as server:
        if request.param == "tls":
            certificate = ssl.get_server_certificate(("127.0.0.1", server.server.port))
            yield (
                f"localhost:{server.server.port}",
                grpc.ssl_channel_credentials(root_certificates=certificate.encode()),
            )
        else:
            yield (f"unix:{path}" if request.param == "unix" else server.target), None


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def server(request: pytest.FixtureRequest, echo: EchoService) -> Iterator[Running]:
    options = ServerOptions(host="127.0.0.1", port=0, limits=Limits(max_message_size=12 * MEBIBYTE))
    with running(options, echo.services, use_uvloop=request.param) as found:
        yield found


def channel_to(target: str, credentials: Any = None, **kwargs: Any) -> grpc.Channel:
    kwargs.setdefault("options", UNLIMITED)
    if credentials is None:
        return grpc.insecure_channel(target, **kwargs)
    return grpc.secure_channel(target, credentials, **kwargs)


def test_blocking_client_streams_both_ways(transport: tuple[str, Any], echo: EchoService):
    with channel_to(*transport) as channel:
        call = channel.stream_stream(METHOD)
        sent = [b"", b"x", b"y" * 70_000, b"z" * (3 * MEBIBYTE)]
        assert list(call(iter(sent), timeout=PATIENCE_S)) == sent
    assert [echo.next_event() for _ in range(2)] == ["open", "half_close"]


async def test_asyncio_client_converses(transport: tuple[str, Any]):
    target, credentials = transport
    channel = (
        grpc.aio.insecure_channel(target)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials)
    )
    async with channel:
        call = channel.stream_stream(METHOD)(timeout=PATIENCE_S)
        for number in range(20):
            await call.write(str(number).encode())
            assert await call.read() == str(number).encode()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_many_streams_share_a_connection(server: Running):
    async with grpc.aio.insecure_channel(server.target) as channel:
        calls = [channel.stream_stream(METHOD)(timeout=PATIENCE_S) for _ in range(60)]
        for turn in range(10):
            for number, call in enumerate(calls):
                await call.write(b"%d %d" % (turn, number))
        for number, call in enumerate(calls):
            await call.done_writing()
            assert [message async for message in call] == [b"%d %d" % (turn, number) for turn in range(10)]
    assert server.server.metrics.connections_opened == 1
    assert server.server.metrics.streams_opened == 60
    assert server.server.metrics.errors == {}


def test_ten_mebibytes_pass_through_small_windows(server: Running):
    options = [*UNLIMITED, ("grpc.http2.lookahead_bytes", 4096), ("grpc.http2.bdp_probe", 0)]
    with channel_to(server.target, options=options) as channel:
        body = bytes(range(256)) * (10 * 4096)
        (answer,) = channel.stream_stream(METHOD)(iter([body]), timeout=PATIENCE_S)
        assert answer == body
        (answer,) = channel.stream_stream(METHOD)(iter([b"big 10485760"]), timeout=PATIENCE_S)
        assert answer == bytes(10 * MEBIBYTE)
    assert server.server.metrics.floods == {}


def test_gzip_from_the_client_is_understood(server: Running):
    with channel_to(server.target, compression=grpc.Compression.Gzip) as channel:
        sent = [b"a" * 10_000, b"b"]
        assert list(channel.stream_stream(METHOD)(iter(sent), timeout=PATIENCE_S)) == sent


def test_metadata_reaches_the_handler(server: Running):
    with channel_to(server.target) as channel:
        call = channel.stream_stream(METHOD)
        answer = list(call(iter([b"header x-tenant"]), metadata=[("x-tenant", "blue")], timeout=PATIENCE_S))
        assert answer == [b"blue"]


def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    return caught.value.code(), caught.value.details()


def test_failures_reach_the_client_with_their_status(server: Running):
    with channel_to(server.target) as channel:
        call = channel.stream_stream(METHOD)
        assert failure(call(iter([b"a", b"fail"]), timeout=PATIENCE_S)) == (
            grpc.StatusCode.INTERNAL,
            "internal error",
        )
        assert failure(call(iter([b"finish"]), timeout=PATIENCE_S)) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "as asked: äöü %",
        )
        unknown = channel.stream_stream("/test.Service/Other")
        assert failure(unknown(iter([b"x"]), timeout=PATIENCE_S)) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "'/test.Service/Other' is not served here",
        )
        too_large = bytes(12 * MEBIBYTE + 1)
        assert failure(call(iter([too_large]), timeout=PATIENCE_S)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "message of 12582913 bytes is larger than 12582912",
        )
        assert list(call(iter([b"still fine"]), timeout=PATIENCE_S)) == [b"still fine"]


def test_client_that_cancels_is_heard_once(server: Running, echo: EchoService):
    with channel_to(server.target) as channel:
        release = threading.Event()

        def requests() -> Iterator[bytes]:
            yield b"hello"
            release.wait(PATIENCE_S)

        call = channel.stream_stream(METHOD)(requests())
        assert next(call) == b"hello"
        call.cancel()
        release.set()
        assert [echo.next_event() for _ in range(2)] == ["open", "cancel"]
    assert server.run(lambda: server.server.metrics.streams_open) == 0


def test_deadline_of_the_client_ends_the_stream_on_both_sides(server: Running, echo: EchoService):
    with channel_to(server.target) as channel:
        release = threading.Event()

        def requests() -> Iterator[bytes]:
            yield b"silent"
            release.wait(PATIENCE_S)

        call = channel.stream_stream(METHOD)(requests(), timeout=0.2)
        assert failure(call)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        release.set()
        assert [echo.next_event() for _ in range(2)] == ["open", "cancel"]


def test_lost_connection_cancels_the_stream(server: Running, echo: EchoService):
    release = threading.Event()
    channel = channel_to(server.target)

    def requests() -> Iterator[bytes]:
        yield b"hello"
        release.wait(PATIENCE_S)

    call = channel.stream_stream(METHOD)(requests())
    assert next(call) == b"hello"
    channel.close()
    release.set()
    assert [echo.next_event() for _ in range(2)] == ["open", "cancel"]
