"""Ten mebibytes through a peer's window of four kibibytes, over a real socket, with `h2` as the client."""

import h2.config
import h2.connection
import h2.events
import h2.settings

from dataplane.extproc.server import ServerOptions
from tests.dataplane.extproc.http2_client import REQUEST, message
from tests.dataplane.extproc.running_server import EchoService, connect, running

WINDOW = 4096
SIZE = 10 * 1024 * 1024


def test_large_message_comes_whole_through_a_small_window():
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
    with (
        running(ServerOptions(host="127.0.0.1", port=0), EchoService().services) as server,
        connect(server.target) as raw,
    ):
        while not ended:
            raw.sendall(client.data_to_send())
            for event in client.receive_data(raw.recv(65_536)):
                if isinstance(event, h2.events.DataReceived):
                    received += event.data
                    largest = max(largest, len(event.data))
                    client.acknowledge_received_data(event.flow_controlled_length, 1)
                ended = ended or isinstance(event, h2.events.StreamEnded)
        metrics = server.server.metrics
        assert metrics.errors == {}
        assert server.run(lambda: metrics.streams_open) == 0

    assert bytes(received) == message(bytes(SIZE))
    assert largest <= WINDOW
