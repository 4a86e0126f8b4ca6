"""State of one connection and the operations on it that streams and frame handlers share.

`Connection` adds the reading of bytes and the life cycle. Output is a list of byte strings joined into one
write by `flush`; it happens at the end of a read, or soon after when something is sent in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import hpack

from dataplane.extproc.http2 import blocks
from dataplane.extproc.http2.constants import (
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_WINDOW,
    FRAME,
    GOAWAY,
    GOAWAY_HEAD,
    HEADERS,
    RST_STREAM,
    WINDOW_UPDATE,
    WORD,
    ErrorCode,
    GrpcStatus,
)
from dataplane.extproc.http2.errors import ConnectionFault, MessageFault, StreamFault
from dataplane.extproc.http2.heads import HeadReader
from dataplane.extproc.http2.interface import StreamHandler
from dataplane.extproc.http2.limits import Flood, FloodGuard, Limits
from dataplane.extproc.http2.stream import Stream
from dataplane.extproc.transport_metrics import TransportMetrics

log = logging.getLogger(__name__)

MAX_UNWRITTEN: Final = 256 * 1024
"""Queued DATA moved to the output before it is written, so that the socket can say when it is behind."""


@dataclass(slots=True)
class OpenBlock:
    """A header block whose END_HEADERS has not come."""

    stream_id: int
    flags: int
    depends_on_itself: bool
    opened_in: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0


class Link:
    """Everything but bytes in and the life cycle."""

    __slots__ = (
        "backlog",
        "batching",
        "closed",
        "decoder",
        "draining",
        "first_block",
        "floods",
        "frames_out",
        "goaway_is_final",
        "last_id",
        "limits",
        "loop",
        "max_frame_size",
        "max_message_size",
        "metrics",
        "open_block",
        "out",
        "peer_frame_size",
        "peer_initial_window",
        "queued",
        "reader",
        "ready",
        "reassembly_bytes",
        "recv_low",
        "recv_window",
        "resets",
        "send_frame_limit",
        "send_window",
        "stream_low",
        "streams",
        "transport",
        "unwritten",
    )

    def __init__(
        self, reader: HeadReader, limits: Limits, metrics: TransportMetrics, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.reader = reader
        self.limits = limits
        # Copies, because every read looks at them.
        self.max_frame_size = limits.max_frame_size
        self.max_message_size = limits.max_message_size
        self.metrics = metrics
        self.loop = loop
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self.draining = False
        self.goaway_is_final = False
        self.floods = FloodGuard(limits)

        self.streams: dict[int, Stream] = {}
        self.last_id = 0
        self.resets: dict[int, None] = {}

        self.decoder: hpack.Decoder | None = reader.new_decoder()
        self.open_block: OpenBlock | None = None
        self.recv_window = limits.connection_window
        self.recv_low = limits.connection_window // 2
        self.stream_low = limits.stream_window // 2
        self.reassembly_bytes = 0

        self.out: list[bytes | memoryview] = []
        self.unwritten = 0
        self.backlog = 0
        self.batching = False
        self.frames_out = 0
        self.first_block = True
        self.send_window = DEFAULT_WINDOW
        self.peer_initial_window = DEFAULT_WINDOW
        self.peer_frame_size = DEFAULT_MAX_FRAME_SIZE
        # What one frame may carry at this moment: 0 while the socket does not take more.
        self.send_frame_limit = DEFAULT_MAX_FRAME_SIZE
        self.queued = 0
        self.ready: deque[Stream] = deque()

    # -- output ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Hand everything queued to the socket in one write."""
        self.batching = False
        if self.out:
            self._write_out()

    def _write_out(self) -> None:
        data = b"".join(self.out)
        self.out.clear()
        self.unwritten = 0
        transport = self.transport
        if self.closed or transport is None:
            return
        metrics = self.metrics
        metrics.bytes_out += len(data)
        metrics.frames_out += self.frames_out
        self.frames_out = 0
        if not self.send_frame_limit:
            # What is written while the socket is behind is answers to a peer that asks and does not read.
            self.backlog += len(data)
            if self.backlog > self.limits.max_control_backlog:
                log.warning("dropping a connection that does not read what it is sent")
                transport.abort()
                return
        transport.write(data)

    def flush_soon(self) -> None:
        """Flush once the current callback is done; for what is sent outside a read."""
        self.batching = True
        self.loop.call_soon(self.flush)

    def write_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """One frame other than DATA."""
        size = len(payload)
        self.frames_out += 1
        self.out.append(FRAME.pack(size >> 8, size & 255, kind, flags, stream_id))
        self.out.append(payload)

    def write_headers(self, stream_id: int, block: bytes, flags: int) -> None:
        """A header block in one frame."""
        if self.first_block:
            self.first_block = False
            block = blocks.TABLE_SIZE_ZERO + block
        self.write_frame(HEADERS, flags, stream_id, block)

    def write_reset(self, stream_id: int, code: ErrorCode) -> None:
        """RST_STREAM; frames of the stream that are under way are ignored from here on."""
        self.write_frame(RST_STREAM, 0, stream_id, WORD.pack(code))
        self.remember_reset(stream_id)

    def write_goaway(self, last_id: int, code: ErrorCode, reason: str) -> None:
        """GOAWAY with a reason for people."""
        payload = GOAWAY_HEAD.pack(last_id, code) + reason.encode("ascii", "replace")[:120]
        self.write_frame(GOAWAY, 0, 0, payload)

    def pump(self) -> None:
        """Send what waits, a frame per stream in turn, until a window is used up or the socket is behind."""
        ready = self.ready
        while ready and self.send_window > 0 and self.send_frame_limit:
            stream = ready.popleft()
            stream.waiting = False
            if stream.queued and stream.send_window > 0:
                stream.emit_frame()
                stream.wait_turn()
                if self.unwritten > MAX_UNWRITTEN:
                    self._write_out()

    def count_queued(self, size: int) -> None:
        """``size`` more bytes wait for the peer, or fewer."""
        self.queued += size
        self.metrics.buffered_bytes += size

    def count_unfinished(self, size: int) -> None:
        """``size`` more bytes of unfinished messages are held, or fewer."""
        self.reassembly_bytes += size
        self.metrics.buffered_bytes += size

    def server_is_full(self) -> bool:
        """All connections together hold more than they may."""
        return self.metrics.buffered_bytes > self.limits.max_server_buffer

    # -- receive windows ---------------------------------------------------------------------------

    def debit(self, size: int) -> None:
        """Account a DATA frame's payload to the connection's window."""
        self.recv_window -= size
        if self.recv_window < self.recv_low:
            self.top_up_connection()

    def top_up_connection(self) -> None:
        """Give the peer the whole window back; raises ConnectionFault when it sent more than it had."""
        if self.recv_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "DATA beyond the connection's window")
        increment = self.limits.connection_window - self.recv_window
        self.recv_window += increment
        self.write_frame(WINDOW_UPDATE, 0, 0, WORD.pack(increment))

    def top_up(self, stream: Stream) -> None:
        """The same for a stream, unless it will not need it or does not read what it is sent."""
        if stream.recv_window < 0:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "DATA beyond the stream's window")
        if stream.finished or stream.remote_closed or stream.queued > self.limits.send_high_water:
            return
        increment = self.limits.stream_window - stream.recv_window
        stream.recv_window += increment
        self.write_frame(WINDOW_UPDATE, 0, stream.id, WORD.pack(increment))

    # -- ends of streams ---------------------------------------------------------------------------

    def half_close(self, stream: Stream) -> None:
        """The peer's END_STREAM."""
        stream.remote_closed = True
        if stream.body_left:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "content-length is not the length of the body")
        if stream.local_closed:
            self.remove(stream)
        handler = stream.handler
        if handler is None:
            return
        pending = stream.pending
        stream.release_pending()
        if pending is not None and not pending.is_empty:
            raise MessageFault(GrpcStatus.INTERNAL, "the stream ended inside a message")
        self.call_handler(stream, handler.on_half_close)

    def local_end(self, stream: Stream) -> None:
        """Our END_STREAM is in the output; a gRPC peer is told to stop, others may finish their body."""
        stream.local_closed = True
        if stream.remote_closed:
            self.remove(stream)
        elif not stream.head.http_error:
            self.write_reset(stream.id, ErrorCode.NO_ERROR)
            self.remove(stream)

    def remove(self, stream: Stream) -> None:
        """Forget a stream."""
        if self.streams.pop(stream.id, None) is None:
            return
        self.metrics.streams_closed += 1
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None
        if stream.queued:
            stream.drop_queue()
        if self.draining and not self.streams:
            self.loop.call_soon(self.close_if_drained)

    def finish_goaway(self) -> None:
        """The peer has seen the first GOAWAY of a drain: streams after the last one are not taken."""
        if not self.goaway_is_final:
            self.goaway_is_final = True
            self.write_goaway(self.last_id, ErrorCode.NO_ERROR, "draining")
            if not self.streams:
                self.loop.call_soon(self.close_if_drained)

    def close_if_drained(self) -> None:
        """Close the socket when the peer knows that no further stream is taken and none is left."""
        if self.goaway_is_final and not self.streams and self.transport is not None:
            self.flush()
            self.transport.close()

    def remember_reset(self, stream_id: int) -> None:
        """Ignore what still comes for a stream that ended here."""
        resets = self.resets
        resets[stream_id] = None
        if len(resets) > self.limits.max_remembered_resets:
            del resets[next(iter(resets))]

    def cancel(self, stream: Stream) -> None:
        """Forget a stream that its handler has not finished, and tell the handler."""
        handler = stream.detach()
        self.remove(stream)
        self._tell(handler)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream with RST_STREAM."""
        self.write_reset(stream.id, code)
        self.cancel(stream)

    def fail(self, stream: Stream, status: GrpcStatus, reason: str) -> None:
        """End a stream with a gRPC status."""
        handler = stream.handler
        stream.finish(status, reason)
        self._tell(handler)

    def call_handler(self, stream: Stream, method: Callable[[], None]) -> None:
        """Call the handler of ``stream``; whatever it raises costs only that stream."""
        try:
            method()
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            self.handler_failed(stream, error)

    def handler_failed(self, stream: Stream, error: Exception) -> None:
        """A handler raised ``error``."""
        self.metrics.handler_errors += 1
        log.error("stream handler failed; its stream ends with grpc-status 13", exc_info=error)
        self.fail(stream, GrpcStatus.INTERNAL, "internal error")

    def stream_fault(self, stream_id: int, fault: StreamFault) -> None:
        """A peer's fault on one stream, known or not."""
        self.metrics.count_error(fault.code.name)
        self.floods.count(Flood.STREAM_ERROR)
        stream = self.streams.get(stream_id)
        if stream is None:
            self.write_reset(stream_id, fault.code)
        else:
            self.reset(stream, fault.code)

    def overflow(self, stream: Stream) -> None:
        """More waits for the peer than may; the handler is told after its own call has returned."""
        log.warning("resetting a stream that does not read: %d bytes wait for it", stream.queued)
        self.write_reset(stream.id, ErrorCode.ENHANCE_YOUR_CALM)
        self.metrics.count_flood("send_buffer")
        handler = stream.detach()
        self.remove(stream)
        self.loop.call_soon(self._tell, handler)

    def expire(self, stream: Stream) -> None:
        """The deadline of grpc-timeout has passed."""
        stream.timer = None
        if stream.finished:
            self.reset(stream, ErrorCode.CANCEL)
            if not self.batching:
                self.flush_soon()
        else:
            stream.drop_queue()
            self.fail(stream, GrpcStatus.DEADLINE_EXCEEDED, "the call's deadline has passed")

    def _tell(self, handler: StreamHandler | None) -> None:
        """The transport ended the stream of ``handler``."""
        if handler is None:
            return
        self.metrics.streams_cancelled += 1
        try:
            handler.on_cancel()
        except Exception:  # a handler may raise anything, and the other streams must still be told
            self.metrics.handler_errors += 1
            log.exception("stream handler failed in on_cancel")
