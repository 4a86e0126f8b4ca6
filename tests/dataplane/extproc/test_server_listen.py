"""Where the server listens, and what it says when it cannot."""

import errno
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.extproc import server as server_module
from dataplane.extproc.http2 import Limits
from dataplane.extproc.server import ExtProcServer, ServerOptions
from tests.dataplane.extproc.http2_client import PING, PREFACE, frame, settings
from tests.dataplane.extproc.running_server import EchoService, connect, read_until_closed, running

SERVICES = EchoService().services


async def refusal(options: ServerOptions) -> str:
    server = ExtProcServer(options, SERVICES)
    with pytest.raises(ConfigError) as caught:
        await server.start()
    assert server.connections == 0
    return str(caught.value)


async def test_port_in_use_names_the_port_and_the_flag():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = await refusal(ServerOptions(host="127.0.0.1", port=port, port_flag="--grpc-health-port"))
    assert text == (
        f"--grpc-health-port: 127.0.0.1:{port} is in use by another process; stop it or choose another port"
    )


async def test_port_in_use_on_all_interfaces():
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        text = await refusal(ServerOptions(port=port))
    assert text == f"--grpc-port: port {port} is in use by another process; stop it or choose another port"


async def test_port_that_this_user_may_not_open(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_args: object, **_kwargs: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(server_module, "_bound", refuse)
    text = await refusal(ServerOptions(port=443))
    assert text == "--grpc-port: port 443 may not be opened by this user; choose a port above 1023"


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
async def test_port_out_of_range(host: str):
    text = await refusal(ServerOptions(host=host, port=65_536))
    assert text == "--grpc-port: 65536 is not a port; choose one between 0 and 65535"


async def test_address_that_is_not_here():
    text = await refusal(ServerOptions(host="192.0.2.1", port=0))
    assert text == "--grpc-port: cannot listen on 192.0.2.1:0: Cannot assign requested address"


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 64 + ".invalid", "with space"])
async def test_host_that_cannot_be_resolved(host: str):
    text = await refusal(ServerOptions(host=host, port=0))
    assert text.startswith(f"--grpc-port: cannot listen on {host}:0: ")


@pytest.mark.parametrize("path", ["/tmp/with\0nul", "/tmp/" + "x" * 200])
async def test_unix_path_that_cannot_be_one(path: str):
    text = await refusal(ServerOptions(port=None, unix_path=path))
    assert text.startswith(f"--grpc-unix-path: cannot listen on {path!r}: ")


async def test_free_port_is_readable_and_reached_by_ipv4_and_ipv6():
    server = ExtProcServer(ServerOptions(port=0), SERVICES)
    assert server.port == 0
    await server.start()
    assert server.port > 0
    families = [(socket.AF_INET, "127.0.0.1")]
    if socket.has_dualstack_ipv6():
        families.append((socket.AF_INET6, "::1"))
    for family, host in families:
        with socket.socket(family) as client:
            client.connect((host, server.port))
    await server.stop()


async def test_unix_socket_is_removed_when_the_server_stops(tmp_path: Path):
    path = str(tmp_path / "s")
    server = ExtProcServer(ServerOptions(port=None, unix_path=path), SERVICES)
    await server.start()
    assert server.port == 0
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    await server.stop()
    with pytest.raises(FileNotFoundError):
        os.stat(path)


async def test_unix_socket_that_was_replaced_or_removed_meanwhile_is_left_alone(tmp_path: Path):
    path = tmp_path / "s"
    for replace in (True, False):
        server = ExtProcServer(ServerOptions(port=None, unix_path=str(path)), SERVICES)
        await server.start()
        os.unlink(path)
        if replace:
            path.write_text("precious")
        await server.stop()
        if replace:
            assert path.read_text() == "precious"
            os.unlink(path)


async def test_stale_unix_socket_is_replaced(tmp_path: Path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(path)
    server = ExtProcServer(ServerOptions(port=None, unix_path=path), SERVICES)
    await server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    await server.stop()
    assert not (tmp_path / "s").exists()


async def test_unix_socket_of_another_process_stays(tmp_path: Path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        text = await refusal(ServerOptions(port=None, unix_path=path))
        assert text == (
            f"--grpc-unix-path: cannot listen on {path!r}: "
            "another process listens there; stop it or choose another path"
        )
        assert stat.S_ISSOCK(os.stat(path).st_mode)


async def test_file_in_place_of_a_unix_socket_stays(tmp_path: Path):
    path = tmp_path / "s"
    path.write_text("precious")
    text = await refusal(ServerOptions(port=None, unix_path=str(path)))
    assert text.endswith("a file that is not a socket is there; remove it")
    assert path.read_text() == "precious"


async def test_unix_path_that_cannot_be_used_leaves_no_tcp_listener_behind(tmp_path: Path):
    options = ServerOptions(host="127.0.0.1", port=0, unix_path=str(tmp_path / "missing" / "s"))
    server = ExtProcServer(options, SERVICES)
    with pytest.raises(
        ConfigError, match=r"--grpc-unix-path: cannot listen on .*: No such file or directory"
    ):
        await server.start()
    with pytest.raises(ConnectionRefusedError), socket.socket() as client:
        client.connect(("127.0.0.1", server.port))


def test_connections_beyond_the_limit_are_closed_and_counted():
    options = ServerOptions(host="127.0.0.1", port=0, max_connections=2)
    with running(options, SERVICES) as server:
        first, second = connect(server.target), connect(server.target)
        third = connect(server.target)
        assert read_until_closed(third) == b""
        metrics = server.server.metrics
        assert (metrics.connections_opened, metrics.connections_refused) == (2, 1)
        first.close()
        while server.server.connections == 2:
            time.sleep(0.01)
        fourth = connect(server.target)
        while server.server.connections == 1:
            time.sleep(0.01)
        for client in (second, third, fourth):
            client.close()


def test_accepted_connections_send_small_writes_at_once():
    with running(ServerOptions(host="127.0.0.1", port=0), SERVICES) as server, connect(server.target):
        while not server.server.connections:
            time.sleep(0.01)
        (connection,) = server.server._connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_connection_that_says_nothing_is_closed():
    limits = Limits(preface_timeout_s=0.1, flood_interval_s=0.05, linger_s=0.05)
    options = ServerOptions(host="127.0.0.1", port=0, limits=limits)
    with running(options, SERVICES) as server, connect(server.target) as silent:
        received = read_until_closed(silent)
        assert received.endswith(b"no preface")
        assert server.run(lambda: server.server.metrics.errors) == {"SETTINGS_TIMEOUT": 1}


def test_http_1_request_is_turned_away():
    with running(ServerOptions(host="127.0.0.1", port=0), SERVICES) as server, connect(server.target) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_until_closed(raw).endswith(b"not an HTTP/2 preface")


def test_flooder_that_goes_on_sending_is_cut_off():
    limits = Limits(max_pings=10, linger_s=0.1)
    with running(ServerOptions(host="127.0.0.1", port=0, limits=limits), SERVICES) as server:
        raw = connect(server.target)
        raw.sendall(PREFACE + settings())
        pings = frame(PING, 0, 0, bytes(8)) * 1000

        def flood() -> None:
            try:
                while True:
                    raw.sendall(pings)
            except OSError:
                pass

        thread = threading.Thread(target=flood)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        raw.close()
        assert server.server.metrics.floods == {"ping": 1}
