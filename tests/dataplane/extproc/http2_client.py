"""A peer for `Connection` without sockets: builds frames, runs the event loop by hand, reads answers."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hpack

from dataplane.extproc.http2 import Connection, Limits, StreamWriter
from dataplane.extproc.http2.heads import HeadReader
from dataplane.extproc.transport_metrics import TransportMetrics

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH = b"/test.Service/Stream"

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", PATH),
    (b":authority", b"epp:9002"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]


class Frame(NamedTuple):
    """One frame of the answer."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """A frame, whatever is in it."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, stream_id) + payload


def message(body: bytes, flag: int = 0) -> bytes:
    """A gRPC message."""
    return struct.pack(">BL", flag, len(body)) + body


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, payload=b"".join(struct.pack(">HL", *pair) for pair in pairs))


def window_update(stream_id: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream_id, struct.pack(">L", increment))


def reset(stream_id: int, code: int = 8) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, struct.pack(">L", code))


def block(fields: Sequence[tuple[bytes, bytes]] = REQUEST) -> bytes:
    """A header block that depends on no dynamic table."""
    encoder = hpack.Encoder()
    return encoder.encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in fields])


def request(stream_id: int, *, ended: bool = False, **changes: bytes) -> bytes:
    """A HEADERS frame that opens a gRPC stream; keywords replace or add fields, ``_`` standing for ``-``."""
    fields = dict(REQUEST)
    for name, value in changes.items():
        key = name.replace("_", "-").encode()
        fields[b":" + key if key in (b"method", b"scheme", b"path", b"authority") else key] = value
    return frame(HEADERS, END_HEADERS | (END_STREAM if ended else 0), stream_id, block(list(fields.items())))


def frames_of(data: bytes) -> list[Frame]:
    """All frames in ``data``, which must end with a whole one."""
    found = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 3], "big")
        kind, flags, stream_id = struct.unpack_from(">BBL", data, position + 3)
        position += 9 + size
        assert position <= len(data)
        found.append(Frame(kind, flags, stream_id, data[position - size : position]))
    return found


@dataclass
class FakeTransport:
    """Collects what is written."""

    written: list[bytes] = field(default_factory=list)
    is_closed: bool = False
    is_aborted: bool = False
    sent_eof: bool = False

    def write(self, data: bytes) -> None:
        assert data
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        pass

    def get_extra_info(self, _name: str) -> None:
        return None

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.sent_eof = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class Timer:
    """A call that waits for its time."""

    delay: float
    callback: Callable[..., None]
    args: tuple[Any, ...]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled:
            self.callback(*self.args)


class FakeLoop:
    """Keeps calls until the test runs them."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(delay, callback, args))
        return self.timers[-1]

    def run(self) -> None:
        while self.soon:
            callback, args = self.soon.pop(0)
            callback(*args)


class Recorder:
    """A handler that notes what it hears; subclasses answer."""

    def __init__(
        self, writer: StreamWriter, headers: Sequence[tuple[bytes, bytes]], events: list[Any]
    ) -> None:
        self.writer = writer
        self.headers = headers
        self.events = events
        self.id = writer.id  # type: ignore[attr-defined]
        events.append(("open", self.id))

    def on_message(self, message: bytes) -> None:
        self.events.append(("message", self.id, message))

    def on_half_close(self) -> None:
        self.events.append(("half_close", self.id))

    def on_cancel(self) -> None:
        self.events.append(("cancel", self.id))


class Echo(Recorder):
    """Sends each message back and finishes when the peer has sent all."""

    def on_message(self, message: bytes) -> None:
        super().on_message(message)
        self.writer.send(message)

    def on_half_close(self) -> None:
        super().on_half_close()
        self.writer.finish()


class Peer:
    """One connection, seen from the client."""

    def __init__(
        self,
        handler: type[Recorder] = Recorder,
        limits: Limits | None = None,
        *,
        greet: bool = True,
        acknowledge: bool = True,
        client_settings: bytes | None = None,
        metrics: TransportMetrics | None = None,
    ) -> None:
        self.events: list[Any] = []
        self.handlers: list[Recorder] = []
        self.limits = limits or Limits()
        self.loop = FakeLoop()
        self.transport = FakeTransport()
        self.metrics = metrics or TransportMetrics()
        self.reader = HeadReader({PATH: self._open}, self.limits)
        self._handler = handler
        self.connection = Connection(self.reader, self.limits, self.metrics, loop=self.loop)  # type: ignore[arg-type]
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        if greet:
            hello = PREFACE + (settings() if client_settings is None else client_settings)
            self.connection.data_received(hello + (frame(SETTINGS, ACK) if acknowledge else b""))
            self.transport.written.clear()

    def _open(self, writer: StreamWriter, headers: Sequence[tuple[bytes, bytes]]) -> Recorder:
        self.handlers.append(self._handler(writer, headers, self.events))
        return self.handlers[-1]

    def feed(self, *pieces: bytes) -> list[Frame]:
        """One read with all ``pieces``; the frames of the answer."""
        self.connection.data_received(b"".join(pieces))
        self.loop.run()
        return self.sent()

    def sent(self) -> list[Frame]:
        """The frames written since the last look."""
        data = b"".join(self.transport.written)
        self.transport.written.clear()
        return frames_of(data)


def goaway_code(frames: list[Frame]) -> int:
    """Error code of the one GOAWAY in ``frames``."""
    codes = [struct.unpack_from(">LL", found.payload)[1] for found in frames if found.kind == GOAWAY]
    assert len(codes) == 1
    return codes[0]


def reset_codes(frames: list[Frame]) -> dict[int, int]:
    """Stream id to error code of the RST_STREAM frames."""
    return {
        found.stream_id: int.from_bytes(found.payload, "big") for found in frames if found.kind == RST_STREAM
    }


def fields_of(payload: bytes) -> dict[bytes, bytes]:
    """The fields of a response's header block, which needs no state."""
    decoder = hpack.Decoder()
    return {bytes(name): bytes(value) for name, value in decoder.decode(payload, raw=True)}


def status_of(frames: list[Frame], stream_id: int = 1) -> bytes:
    """grpc-status of the trailers of a stream."""
    last = [found for found in frames if found.kind == HEADERS and found.stream_id == stream_id][-1]
    assert last.flags & END_STREAM
    return fields_of(last.payload)[b"grpc-status"]
