"""The asyncio protocol of one connection: bytes in, frames dispatched, one write out; begin and end.

`Connection.data_received` is the hot path of the whole transport; everything it does not do itself is a
function ``(connection, data, start, end, flags, stream_id)`` in `payload`, `requests` or `control`. It
never raises: a fault of the peer ends a stream or the connection, and so does a defect of ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, ParamSpec, Protocol, cast

from dataplane.extproc.http2 import control, payload, requests
from dataplane.extproc.http2.constants import (
    ACK,
    CONTINUATION,
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_WINDOW,
    FRAME,
    FRAME_HEADER_SIZE,
    MESSAGE_PREFIX,
    MESSAGE_PREFIX_SIZE,
    PING,
    PREFACE,
    SETTING,
    SETTINGS,
    SETTINGS_HEADER_TABLE_SIZE,
    SETTINGS_INITIAL_WINDOW_SIZE,
    SETTINGS_MAX_CONCURRENT_STREAMS,
    SETTINGS_MAX_FRAME_SIZE,
    SETTINGS_MAX_HEADER_LIST_SIZE,
    STREAM_ID_MASK,
    WINDOW_UPDATE,
    WORD,
    ErrorCode,
    GrpcStatus,
)
from dataplane.extproc.http2.errors import ConnectionFault, MessageFault, StreamFault
from dataplane.extproc.http2.heads import HeadReader
from dataplane.extproc.http2.interface import DrainAware
from dataplane.extproc.http2.limits import Flood, Limits
from dataplane.extproc.http2.link import Link
from dataplane.extproc.transport_metrics import TransportMetrics

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_unpack_header = FRAME.unpack_from
_unpack_prefix = MESSAGE_PREFIX.unpack_from
_FrameHandler = Callable[[Link, bytes, int, int, int, int], None]

# By frame type, DATA to CONTINUATION.
_FRAME_HANDLERS: Final[tuple[_FrameHandler, ...]] = (
    payload.on_data,
    requests.on_headers,
    control.on_priority,
    control.on_rst_stream,
    control.on_settings,
    control.on_push_promise,
    control.on_ping,
    control.on_goaway,
    control.on_window_update,
    requests.on_continuation,
)

_DRAIN_PING: Final = b"drained?"

_SEND_BUFFER_HIGH: Final = 256 * 1024
"""Bytes the socket may be behind before DATA waits in the streams' queues."""


class ConnectionOwner(Protocol):
    """Who keeps count of connections."""

    def opened(self, connection: Connection) -> bool:
        """False when there is no room for it."""

    def closed(self, connection: Connection) -> None:
        """It is gone; only called for one that had room."""


class Connection(Link, asyncio.Protocol):
    """One client connection, its end of it."""

    __slots__ = ("_age", "_counted", "_intake", "_linger", "_owner", "_tail", "_tail_has", "_tail_needs")

    def __init__(
        self,
        reader: HeadReader,
        limits: Limits,
        metrics: TransportMetrics,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        owner: ConnectionOwner | None = None,
    ) -> None:
        super().__init__(reader, limits, metrics, loop or asyncio.get_running_loop())
        self._owner = owner
        # What a read goes through before it is cut into frames; None when it holds nothing but frames.
        self._intake: Callable[[bytes], bytes] | None = self._take_preface
        self._tail: list[bytes] = []
        self._tail_has = 0
        self._tail_needs = 0
        self._counted = False
        self._age = 0
        self._linger: asyncio.TimerHandle | None = None

    # -- the hot path ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle all whole frames, keep the rest, answer with one write; nothing escapes but to the log."""
        self.batching = True
        self.metrics.bytes_in += len(data)
        try:
            if self._intake is not None:
                data = self._intake(data)
            pos = self._read_frames(data)
            if pos < len(data):
                self._keep_tail(data, pos)
        except ConnectionFault as fault:
            self._abandon(fault)
        except Exception:  # a defect of ours costs one connection, not the process that serves the others
            log.exception("closing a connection on a defect of the transport")
            self._abandon(ConnectionFault(ErrorCode.INTERNAL_ERROR, "internal error"))
        self.flush()

    def _read_frames(self, data: bytes) -> int:
        """Handle the whole frames in ``data``; returns where the first incomplete one starts.

        DATA with whole messages for a handler that wants them is handled right here, and no object is made
        for it but the message. It is told by its type and flags and by ``stream.pending`` being None.
        """
        size = len(data)
        pos = frames = 0
        streams = self.streams
        max_frame = self.max_frame_size
        max_message = self.max_message_size
        while size - pos >= FRAME_HEADER_SIZE:
            high, low, kind, flags, sid = _unpack_header(data, pos)
            length = high << 8 | low
            if length > max_frame:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "frame is too large")
            start = pos + FRAME_HEADER_SIZE
            end = start + length
            if end > size:
                break
            pos = end
            frames += 1
            stream = streams.get(sid)
            if (
                kind
                or flags > 1
                or stream is None
                or stream.pending is not None
                or self.open_block is not None
            ):
                self._handle(kind, data, start, end, flags, sid & STREAM_ID_MASK)
                continue
            self.recv_window -= length
            if self.recv_window < self.recv_low:
                self.top_up_connection()
            stream.recv_window -= length
            if stream.recv_window < self.stream_low:
                self._guarded(sid, self.top_up, stream)
            if flags:
                stream.remote_closed = True
            try:
                while end - start >= MESSAGE_PREFIX_SIZE:
                    flag, need = _unpack_prefix(data, start)
                    body = start + MESSAGE_PREFIX_SIZE
                    stop = body + need
                    if flag or stop > end or need > max_message:
                        break
                    start = stop
                    stream.on_message(data[body:stop])
            except Exception as error:  # noqa: BLE001 - a handler may raise anything
                self.handler_failed(stream, error)
            if start != end:
                self._guarded(sid, payload.receive, self, stream, data[start:end], flags)
            elif flags:
                self.half_close(stream)
            elif not length:
                self.floods.count(Flood.EMPTY_DATA)
        self.metrics.frames_in += frames
        return pos

    def _handle(self, kind: int, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        """Any frame but the usual one."""
        if self.closed:
            return
        if self.open_block is not None and kind != CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is not finished")
        handler = _FRAME_HANDLERS[kind] if kind < len(_FRAME_HANDLERS) else control.on_unknown
        self._guarded(stream_id, handler, self, data, start, end, flags, stream_id)

    def _guarded(
        self, stream_id: int, function: Callable[_P, None], *args: _P.args, **kwargs: _P.kwargs
    ) -> None:
        """Call ``function``; a fault of one stream ends that stream."""
        try:
            function(*args, **kwargs)
        except StreamFault as fault:
            self.stream_fault(stream_id, fault)
        except MessageFault as fault:
            stream = self.streams.get(stream_id)
            if stream is not None:
                self.fail(stream, fault.status, fault.reason)

    # -- what comes before frames ------------------------------------------------------------------

    def _take_preface(self, data: bytes) -> bytes:
        """Hold back until the preface and the header of the first frame are here, then greet."""
        self._tail.append(data)
        data = b"".join(self._tail)
        self._tail = [data]
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "not an HTTP/2 preface")
        if len(data) < len(PREFACE) + FRAME_HEADER_SIZE:
            return b""
        self._tail = []
        self._intake = None
        self._age = 0
        self._greet()
        _, _, kind, flags, _ = _unpack_header(data, len(PREFACE))
        if kind != SETTINGS or flags & ACK:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        return data[len(PREFACE) :]

    def _greet(self) -> None:
        limits = self.limits
        settings = [
            (SETTINGS_HEADER_TABLE_SIZE, 0),
            (SETTINGS_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
            (SETTINGS_INITIAL_WINDOW_SIZE, limits.stream_window),
            (SETTINGS_MAX_HEADER_LIST_SIZE, limits.max_header_list),
        ]
        if limits.max_frame_size != DEFAULT_MAX_FRAME_SIZE:
            settings.append((SETTINGS_MAX_FRAME_SIZE, limits.max_frame_size))
        self.write_frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*setting) for setting in settings))
        if limits.connection_window > DEFAULT_WINDOW:
            self.write_frame(WINDOW_UPDATE, 0, 0, WORD.pack(limits.connection_window - DEFAULT_WINDOW))

    def _keep_tail(self, data: bytes, pos: int) -> None:
        """Hold an incomplete frame; it is joined once, when the rest is here, however small the reads."""
        tail = data[pos:]
        needs = FRAME_HEADER_SIZE
        if len(tail) >= FRAME_HEADER_SIZE:
            high, low = tail[0] << 8 | tail[1], tail[2]
            needs += high << 8 | low
        self._tail = [tail]
        self._tail_has = len(tail)
        self._tail_needs = needs
        self._intake = self._take_rest

    def _take_rest(self, data: bytes) -> bytes:
        self._tail.append(data)
        self._tail_has += len(data)
        if self._tail_has < self._tail_needs:
            return b""
        whole = b"".join(self._tail)
        self._tail = []
        self._intake = None
        return whole

    @staticmethod
    def _take_nothing(_data: bytes) -> bytes:
        """After a GOAWAY with an error: read and forget."""
        return b""

    # -- life --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, and TLS is up where it is used."""
        # A cast and not a check: uvloop's transports do not inherit from asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        if self._owner is not None and not self._owner.opened(self):
            self._owner = None
            self.closed = True
            self._intake = self._take_nothing
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=_SEND_BUFFER_HIGH)
        self.metrics.connections_opened += 1
        self._counted = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone; whoever still waits on a stream is told."""
        if self._linger is not None:
            self._linger.cancel()
        self._end_streams()
        self.transport = None
        if self._counted:
            self.metrics.connections_closed += 1
        if self._owner is not None:
            self._owner.closed(self)

    def pause_writing(self) -> None:
        """The socket is behind: DATA waits in the streams' queues."""
        self.send_frame_limit = 0

    def resume_writing(self) -> None:
        """The socket has caught up."""
        self.send_frame_limit = self.peer_frame_size
        self.backlog = 0
        self.pump()
        self.flush()

    def tick(self) -> None:
        """Once per `Limits.flood_interval_s`: forget the flood counters, close what never got going."""
        self.floods.next_interval()
        self._age += 1
        patience = self.limits.preface_timeout_s / self.limits.flood_interval_s
        if self.closed:
            return
        if self._intake == self._take_preface and self._age > patience:
            self._abandon(ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "no preface"))
        elif self.decoder is not None and self._age > patience:
            self._abandon(ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "SETTINGS are not acknowledged"))
        elif self.open_block is not None and self.floods.interval - self.open_block.opened_in > patience:
            self._abandon(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header block is not finished"))

    def drain(self) -> None:
        """Take no new streams and close when the running ones are done.

        The first GOAWAY names the largest possible stream, so that streams already under way are still
        served; the answer to the PING behind it tells that the peer has seen it.
        """
        if self.draining or self.closed or self.transport is None:
            return
        self.draining = True
        if self._intake == self._take_preface:
            self.transport.close()
            return
        self.write_goaway(STREAM_ID_MASK, ErrorCode.NO_ERROR, "draining")
        self.write_frame(PING, 0, 0, _DRAIN_PING)
        for stream in list(self.streams.values()):
            handler: object = stream.handler
            if isinstance(handler, DrainAware):
                self.call_handler(stream, handler.on_drain)
        self.flush()

    def close(self, reason: str) -> None:
        """End the running streams with grpc-status 14 and close."""
        if self._linger is not None:
            self.abort()
        if self.closed or self.transport is None:
            return
        for stream in list(self.streams.values()):
            if stream.finished:
                self.reset(stream, ErrorCode.CANCEL)
            else:
                stream.drop_queue()
                self.fail(stream, GrpcStatus.UNAVAILABLE, reason)
        if self._intake != self._take_preface:
            self.write_goaway(self.last_id, ErrorCode.NO_ERROR, reason)
        self.flush()
        self.closed = True
        self._intake = self._take_nothing
        self.transport.close()

    def abort(self) -> None:
        """Cut the connection; what is queued is lost."""
        if self.transport is not None:
            self.transport.abort()

    def _abandon(self, fault: ConnectionFault) -> None:
        """GOAWAY, end every stream, and close once the peer has had time to read why."""
        if self.closed:
            return
        self.metrics.count_error(fault.code.name)
        if fault.flood:
            self.metrics.count_flood(fault.flood)
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        log.info("closing the connection of %s: %s (%s)", peer or "a peer", fault.reason, fault.code.name)
        self.write_goaway(self.last_id, fault.code, fault.reason)
        self.flush()
        self._end_streams()
        transport = self.transport
        if transport is not None:
            if transport.can_write_eof():
                transport.write_eof()
            self._linger = self.loop.call_later(self.limits.linger_s, transport.abort)

    def _end_streams(self) -> None:
        self.closed = True
        self._intake = self._take_nothing
        self._tail = []
        self.open_block = None
        for stream in list(self.streams.values()):
            self.cancel(stream)
        self.out.clear()
