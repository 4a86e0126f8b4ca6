"""One stream: its state, and its sending half.

The connection owns the streams and calls in; a handler holds one as its `StreamWriter`. A message that fits
the windows and one frame goes straight to the connection's output list. What does not fit waits in the
stream's queue and leaves in frames as large as the peer allows, streams taking turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dataplane.extproc.http2 import blocks
from dataplane.extproc.http2.constants import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME,
    MESSAGE_FRAME,
    MESSAGE_PREFIX,
    MESSAGE_PREFIX_SIZE,
)
from dataplane.extproc.http2.interface import StreamHandler
from dataplane.extproc.http2.messages import MessageBuffer

if TYPE_CHECKING:
    from dataplane.extproc.http2.heads import RequestHead
    from dataplane.extproc.http2.link import Link

NO_MESSAGES: Final = MessageBuffer(0)
"""Stands in `Stream.pending` once nothing more may reach the handler."""

_pack_message_frame = MESSAGE_FRAME.pack


def _discard(_message: bytes) -> None:
    """Where messages go when there is no handler."""


class Stream:
    """State of one stream; a `StreamWriter` towards its handler."""

    __slots__ = (
        "body_left",
        "conn",
        "ending",
        "finished",
        "handler",
        "head",
        "head_sent",
        "id",
        "local_closed",
        "on_message",
        "pending",
        "queue",
        "queued",
        "recv_window",
        "remote_closed",
        "send_window",
        "timer",
        "waiting",
    )

    def __init__(self, conn: Link, stream_id: int, head: RequestHead) -> None:
        self.conn = conn
        self.id = stream_id
        self.head = head
        self.handler: StreamHandler | None = None
        self.on_message: Callable[[bytes], None] = _discard
        # None is the usual state, "the next DATA frame starts a message and the handler wants it": it is
        # the one thing the fast path looks at. Otherwise the frame takes the slow path.
        self.pending: MessageBuffer | None = None
        self.body_left = head.content_length
        if self.body_left is not None:
            self.pending = MessageBuffer(conn.limits.max_message_size)
        self.recv_window = conn.limits.stream_window
        self.send_window = conn.peer_initial_window
        self.remote_closed = False
        self.local_closed = False
        self.finished = False
        self.head_sent = False
        self.queue: deque[bytes | memoryview] | None = None
        self.queued = 0
        self.ending: bytes | None = None
        self.waiting = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """False after `finish` and after the transport ended the stream."""
        return not self.finished

    @property
    def buffered_bytes(self) -> int:
        """Bytes queued here, framing excluded."""
        return self.queued

    def send(self, *parts: bytes) -> None:
        """Queue one gRPC message, the concatenation of ``parts``."""
        if self.finished:
            return
        conn = self.conn
        if not self.head_sent:
            self.head_sent = True
            conn.write_headers(self.id, blocks.RESPONSE_HEAD, END_HEADERS)
        size = 0
        for part in parts:
            size += len(part)
        framed = size + MESSAGE_PREFIX_SIZE
        if (
            framed <= self.send_window
            and framed <= conn.send_window
            and framed <= conn.send_frame_limit
            and not self.queued
        ):
            self.send_window -= framed
            conn.send_window -= framed
            conn.frames_out += 1
            out = conn.out
            out.append(_pack_message_frame(framed >> 8, framed & 255, DATA, 0, self.id, 0, size))
            out += parts
        else:
            self._enqueue((MESSAGE_PREFIX.pack(0, size), *parts), framed)
        if not conn.batching:
            conn.flush_soon()

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the stream with trailers once everything queued is sent."""
        if self.finished:
            return
        self.detach()
        block = (
            blocks.trailers(status, message[: blocks.MAX_GRPC_MESSAGE])
            if status or message
            else blocks.OK_TRAILERS
        )
        if not self.head_sent:
            self.head_sent = True
            block = blocks.RESPONSE_HEAD + block
        conn = self.conn
        if self.queued:
            self.ending = block
        else:
            conn.write_headers(self.id, block, END_HEADERS | END_STREAM)
            conn.local_end(self)
        if not conn.batching:
            conn.flush_soon()

    def refuse(self, status: int, text: str, *, with_body: bool) -> None:
        """Answer with an HTTP error instead of gRPC."""
        self.detach()
        self.head_sent = True
        conn = self.conn
        body = text.encode() + b"\n"
        flags = END_HEADERS if with_body else END_HEADERS | END_STREAM
        conn.write_headers(self.id, blocks.http_error(status, len(body)), flags)
        if with_body:
            self.ending = b""
            self._enqueue((body,), len(body))
        else:
            conn.local_end(self)

    def detach(self) -> StreamHandler | None:
        """Let go of the handler, which hears nothing from here on; drops the reference cycle with it."""
        handler, self.handler = self.handler, None
        self.on_message = _discard
        self.finished = True
        self.release_pending()
        return handler

    def release_pending(self) -> None:
        """Forget an unfinished message; further DATA takes the slow path."""
        if self.pending is not None:
            self.conn.count_unfinished(-self.pending.held)
        self.pending = NO_MESSAGES

    def emit_frame(self) -> None:
        """Move one DATA frame of what waits to the output; the caller knows that both windows are open."""
        conn = self.conn
        size = min(self.queued, self.send_window, conn.send_window, conn.send_frame_limit)
        self.queued -= size
        self.send_window -= size
        conn.count_queued(-size)
        conn.send_window -= size
        conn.unwritten += size
        conn.frames_out += 1
        ends = not self.queued and self.ending == b""
        conn.out.append(FRAME.pack(size >> 8, size & 255, DATA, END_STREAM if ends else 0, self.id))
        self._take(size)
        if not self.queued and self.ending is not None:
            if self.ending:
                conn.write_headers(self.id, self.ending, END_HEADERS | END_STREAM)
            conn.local_end(self)
        elif self.recv_window < conn.stream_low and not self.finished:
            conn.top_up(self)

    def wait_turn(self) -> None:
        """Join the streams that can send as soon as the connection can."""
        if self.queued and self.send_window > 0 and not self.waiting:
            self.waiting = True
            self.conn.ready.append(self)

    def drop_queue(self) -> None:
        """Forget everything queued."""
        self.conn.count_queued(-self.queued)
        self.queued = 0
        self.queue = None
        self.ending = None

    def _enqueue(self, parts: tuple[bytes, ...], size: int) -> None:
        conn = self.conn
        if self.queue is None:
            self.queue = deque()
        self.queue.extend(part for part in parts if part)
        self.queued += size
        conn.count_queued(size)
        self.wait_turn()
        conn.pump()
        limits = conn.limits
        if self.queued and (
            self.queued > limits.max_stream_send_buffer
            or conn.queued > limits.max_connection_send_buffer
            or conn.server_is_full()
        ):
            conn.overflow(self)

    def _take(self, size: int) -> None:
        """Move ``size`` bytes from the queue to the output without copying them."""
        queue, out = self.queue, self.conn.out
        assert queue is not None  # noqa: S101 - bytes are queued, so there is a queue
        while size:
            part = queue[0]
            if len(part) > size:
                view = memoryview(part)
                out.append(view[:size])
                queue[0] = view[size:]
                return
            out.append(queue.popleft())
            size -= len(part)
