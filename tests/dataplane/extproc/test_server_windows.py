"""Large messages over a real socket: through small windows, and to a client that is slow to read."""

from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from dataplane.extproc import server as server_module
from dataplane.extproc.server import ServerOptions
from tests.dataplane.extproc.http2_client import (
    ACK,
    DATA,
    END_STREAM,
    PREFACE,
    REQUEST,
    SETTINGS,
    frame,
    frames_of,
    message,
    request,
    settings,
    window_update,
)
from tests.dataplane.extproc.running_server import EchoService, Running, connect, running
from tests.support.waiting import wait_until

WINDOW = 4096
SIZE = 10 * 1024 * 1024


@pytest.fixture
def server() -> Iterator[Running]:
    with running(ServerOptions(host="127.0.0.1", port=0), EchoService().services) as found:
        yield found


def test_large_message_comes_whole_through_a_small_window(server: Running):
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    client.local_settings = h2.settings.Settings(
        client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW}
    )
    client.initiate_connection()
    client.send_headers(1, REQUEST)
    client.send_data(1, message(b"big %d" % SIZE), end_stream=True)

    received = bytearray()
    largest = 0
    ended = False
    with connect(server.target) as raw:
        while not ended:
            raw.sendall(client.data_to_send())
            for event in client.receive_data(raw.recv(65_536)):
                if isinstance(event, h2.events.DataReceived):
                    received += event.data
                    largest = max(largest, len(event.data))
                    client.acknowledge_received_data(event.flow_controlled_length, 1)
                ended = ended or isinstance(event, h2.events.StreamEnded)
    assert server.server.metrics.errors == {}
    assert server.run(lambda: server.server.metrics.streams_open) == 0

    assert bytes(received) == message(bytes(SIZE))
    assert largest <= WINDOW


def test_client_that_is_slow_to_read_is_waited_for(server: Running):
    with connect(server.target) as raw:
        wide = settings((4, 0x7FFF_FFFF)) + window_update(0, 0x7FFF_FFFF - 65_535)
        asked = b"".join(frame(DATA, 0, 1, message(b"big %d" % SIZE)) for _ in range(3))
        raw.sendall(PREFACE + wide + frame(SETTINGS, ACK) + request(1) + asked)
        (connection,) = wait_until(lambda: server.server._connections)
        wait_until(lambda: server.run(lambda: connection.queued))
        assert server.run(lambda: connection.queued) > SIZE
        assert server.run(connection.transport.get_write_buffer_size) < 1024 * 1024

        raw.sendall(frame(DATA, END_STREAM, 1))
        received = b""
        pieces = []
        while not received.endswith(b"\x0bgrpc-status\x010"):
            pieces.append(raw.recv(1 << 20))
            received = (received + pieces[-1])[-40:]
        frames = frames_of(b"".join(pieces))
        assert b"".join(found.payload for found in frames if found.kind == DATA) == message(bytes(SIZE)) * 3
        assert server.run(lambda: connection.queued) == 0


def test_stop_cuts_a_client_that_does_not_read(server: Running, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "STOP_GRACE_S", 0.05)
    with connect(server.target) as raw:
        wide = settings((4, 0x7FFF_FFFF)) + window_update(0, 0x7FFF_FFFF - 65_535)
        raw.sendall(PREFACE + wide + request(1) + frame(DATA, 0, 1, message(b"big %d" % SIZE)))
        assert raw.recv(1)
        server.call(server.server.stop())
        assert server.server.connections == 0
        assert server.server.metrics.buffered_bytes == 0
