"""DATA frames off the fast path: padding, pieces of messages, compression, closed streams.

`Connection.data_received` handles the usual frame itself, whole messages on a stream whose handler wants
them, and leaves the rest to these functions.
"""

from __future__ import annotations

from dataplane.extproc.http2.constants import END_STREAM, PADDED, ErrorCode, GrpcStatus
from dataplane.extproc.http2.errors import ConnectionFault, MessageFault, StreamFault
from dataplane.extproc.http2.limits import Flood
from dataplane.extproc.http2.link import Link
from dataplane.extproc.http2.messages import MessageBuffer, decoded
from dataplane.extproc.http2.stream import Stream

TINY_BYTES = 256


def on_data(conn: Link, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
    """One DATA frame; its payload is ``data[start:end]``."""
    if stream_id == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "DATA on stream 0")
    length = end - start
    conn.debit(length)
    if flags & PADDED:
        start, end = unpadded(data, start, end)
    stream = conn.streams.get(stream_id)
    if stream is None:
        on_late_frame(conn, stream_id)
        if stream_id not in conn.resets:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "DATA on a closed stream")
        return
    if stream.remote_closed:
        raise StreamFault(ErrorCode.STREAM_CLOSED, "DATA after END_STREAM")
    stream.recv_window -= length
    if stream.recv_window < conn.stream_low:
        conn.top_up(stream)
    if end == start and not flags & END_STREAM:
        conn.floods.count(Flood.EMPTY_DATA)
    if stream.body_left is not None:
        stream.body_left -= end - start
        if stream.body_left < 0 or (flags & END_STREAM and stream.body_left):
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "content-length is not the length of the body")
    if flags & END_STREAM:
        stream.remote_closed = True
    receive(conn, stream, data[start:end], flags)


def unpadded(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Bounds of the payload between the pad length and the padding."""
    if start == end:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "no room for the pad length")
    stop = end - data[start]
    if stop <= start:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return start + 1, stop


def on_late_frame(conn: Link, stream_id: int) -> None:
    """A frame other than HEADERS or PRIORITY on a stream that is not there: fine if it once was."""
    if stream_id > conn.last_id or not stream_id & 1:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "frame on an idle stream")
    conn.floods.count(Flood.LATE_FRAME)


def receive(conn: Link, stream: Stream, piece: bytes, flags: int) -> None:
    """Payload of one frame, or what the fast path left of it."""
    if not stream.finished:
        completed = _deliver(conn, stream, piece)
        if not completed and len(piece) < TINY_BYTES and not flags & END_STREAM:
            conn.floods.count(Flood.TINY_DATA)
    elif stream.head.http_error:
        limits = conn.limits
        if limits.stream_window - stream.recv_window > min(
            limits.max_refused_body, limits.stream_window // 2
        ):
            conn.reset(stream, ErrorCode.NO_ERROR)
    if flags & END_STREAM and stream.id in conn.streams:
        conn.half_close(stream)


def _deliver(conn: Link, stream: Stream, piece: bytes) -> int:
    """Give the handler each message that ``piece`` completes; returns how many."""
    limit = conn.limits.max_message_size
    buffer = stream.pending
    if buffer is None:
        buffer = stream.pending = MessageBuffer(limit)
    conn.count_unfinished(-buffer.held)
    completed = 0
    for flag, message in buffer.feed(piece):
        completed += 1
        if flag:
            message = decoded(flag, message, stream.head.encoding, limit)
        try:
            stream.on_message(message)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            conn.handler_failed(stream, error)
        if stream.finished:
            return completed
    conn.count_unfinished(buffer.held)
    if conn.reassembly_bytes > conn.limits.max_reassembly_bytes or conn.server_is_full():
        raise MessageFault(GrpcStatus.RESOURCE_EXHAUSTED, "too many unfinished messages")
    if buffer.is_empty and stream.body_left is None:
        stream.pending = None
    return completed
