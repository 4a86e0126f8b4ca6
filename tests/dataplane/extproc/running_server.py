"""A server in a thread of its own, so that blocking and asyncio clients can be tried against it alike."""

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import uvloop

from dataplane.extproc.health import HealthState
from dataplane.extproc.http2 import Services, StreamWriter
from dataplane.extproc.server import ExtProcServer, ServerOptions
from tests.support.waiting import PATIENCE_S

PATH = b"/test.Service/Stream"


class Running:
    """An `ExtProcServer` on an event loop in another thread."""

    def __init__(
        self,
        options: ServerOptions,
        services: Services,
        *,
        health: HealthState | None = None,
        use_uvloop: bool = True,
    ) -> None:
        self.loop = uvloop.new_event_loop() if use_uvloop else asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = ExtProcServer(options, services, health=health)
        try:
            self.call(self.server.start())
        except BaseException:
            self._end_loop()
            raise

    @property
    def target(self) -> str:
        """Address for a client."""
        return f"127.0.0.1:{self.server.port}"

    def call(self, coroutine: Coroutine[Any, Any, Any], timeout: float = PATIENCE_S) -> Any:
        """Run a coroutine on the server's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def run(self, function: Any, *args: Any) -> Any:
        """Call a function on the server's loop and wait for it."""

        async def called() -> Any:
            return function(*args)

        return self.call(called())

    def stop(self) -> None:
        """Stop the server and its thread."""
        self.call(self.server.stop())
        self._end_loop()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@contextlib.contextmanager
def running(options: ServerOptions, services: Services, **kwargs: Any) -> Iterator[Running]:
    """A running server that is stopped in the end."""
    server = Running(options, services, **kwargs)
    try:
        yield server
    finally:
        server.stop()


class EchoHandler:
    """Echoes; what a message starts with may ask for something else. Notes events in a queue."""

    def __init__(
        self, writer: StreamWriter, headers: Sequence[tuple[bytes, bytes]], events: "queue.Queue[Any]"
    ) -> None:
        self.writer = writer
        self.headers = dict(headers)
        self.events = events
        events.put(("open", self))

    def on_message(self, message: bytes) -> None:
        if message == b"fail":
            raise RuntimeError("as asked")
        if message == b"finish":
            self.writer.finish(9, "as asked: äöü %")
        elif message.startswith(b"big "):
            self.writer.send(bytes(int(message[4:])))
        elif message.startswith(b"header "):
            self.writer.send(self.headers[message[7:]])
        elif message != b"silent":
            self.writer.send(message)

    def on_half_close(self) -> None:
        self.events.put(("half_close", self))
        self.writer.finish()

    def on_cancel(self) -> None:
        self.events.put(("cancel", self))


class EchoService:
    """Services with an `EchoHandler`, and what its streams did."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.services: Services = {PATH: lambda writer, headers: EchoHandler(writer, headers, self.events)}

    def next_event(self) -> str:
        """Name of the next event; waits for it."""
        return str(self.events.get(timeout=PATIENCE_S)[0])


def connect(target: str) -> socket.socket:
    """A plain connection to ``host:port``."""
    host, _, port = target.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def read_until_closed(connection: socket.socket) -> bytes:
    """Everything the server sends before it closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            received += piece
    return received
