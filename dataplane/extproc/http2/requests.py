"""HEADERS and CONTINUATION: streams open, end by trailers, or are refused."""

from __future__ import annotations

from dataplane.extproc.http2.constants import (
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    PADDED,
    STREAM_ID_MASK,
    WORD,
    ErrorCode,
    GrpcStatus,
)
from dataplane.extproc.http2.errors import ConnectionFault, StreamFault
from dataplane.extproc.http2.heads import OversizedHeadersError, RequestHead, check_regular
from dataplane.extproc.http2.limits import Flood
from dataplane.extproc.http2.link import Link, OpenBlock
from dataplane.extproc.http2.payload import unpadded
from dataplane.extproc.http2.stream import Stream

_PRIORITY_SIZE = 5


def on_headers(conn: Link, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
    """One HEADERS frame."""
    if not stream_id & 1:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream that clients may not open")
    depends_on_itself = False
    if flags & (PADDED | HAS_PRIORITY):
        if flags & PADDED:
            start, end = unpadded(data, start, end)
        if flags & HAS_PRIORITY:
            if end - start < _PRIORITY_SIZE:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "no room for the priority")
            depends_on_itself = WORD.unpack_from(data, start)[0] & STREAM_ID_MASK == stream_id
            start += _PRIORITY_SIZE
    if flags & END_HEADERS and not depends_on_itself and end - start <= conn.limits.max_header_block:
        _on_block(conn, stream_id, flags, data[start:end])
        return
    conn.open_block = OpenBlock(stream_id, flags, depends_on_itself, conn.floods.interval)
    conn.floods.clear(Flood.CONTINUATION)
    _add(conn, conn.open_block, data[start:end], flags)


def on_continuation(conn: Link, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
    """One CONTINUATION frame; the caller lets nothing else through while a block is open."""
    block = conn.open_block
    if block is None or block.stream_id != stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without its HEADERS")
    conn.floods.count(Flood.CONTINUATION)
    _add(conn, block, data[start:end], flags)


def _add(conn: Link, block: OpenBlock, piece: bytes, flags: int) -> None:
    block.size += len(piece)
    if block.size > conn.limits.max_header_block:
        reason = "header block is too large"
        raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, flood="header_block")
    block.pieces.append(piece)
    if not flags & END_HEADERS:
        return
    conn.open_block = None
    whole = b"".join(block.pieces)
    if block.depends_on_itself:
        conn.last_id = max(conn.last_id, block.stream_id)
        _keep_table(conn, whole)
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "stream depends on itself")
    _on_block(conn, block.stream_id, block.flags, whole)


def _on_block(conn: Link, stream_id: int, flags: int, block: bytes) -> None:
    if stream_id > conn.last_id:
        _on_request(conn, stream_id, flags, block)
        return
    stream = conn.streams.get(stream_id)
    if stream is not None:
        _on_trailers(conn, stream, flags, block)
        return
    _keep_table(conn, block)
    if stream_id in conn.resets:
        conn.floods.count(Flood.LATE_FRAME)
        return
    if stream_id == conn.last_id:
        raise ConnectionFault(ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream")
    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "stream identifier is not larger than the last one")


def _keep_table(conn: Link, block: bytes) -> None:
    """Decode a block nobody wants, because a table that has state must see it."""
    if conn.decoder is not None:
        conn.reader.fields(block, conn.decoder)


def _on_request(conn: Link, stream_id: int, flags: int, block: bytes) -> None:
    conn.last_id = stream_id
    head = None
    if conn.decoder is not None:
        head = conn.reader.request(block, conn.decoder)
    if conn.goaway_is_final:
        conn.remember_reset(stream_id)
        return
    limits = conn.limits
    if (
        len(conn.streams) >= limits.max_concurrent_streams
        or conn.metrics.streams_open >= limits.max_server_streams
    ):
        conn.metrics.streams_refused += 1
        conn.floods.count(Flood.STREAM_ERROR)
        conn.write_reset(stream_id, ErrorCode.REFUSED_STREAM)
        return
    if head is None:
        head = conn.reader.known.get(block) or conn.reader.request(block, None)
    if flags & END_STREAM and head.content_length:
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "content-length of a request without a body")
    _open(conn, Stream(conn, stream_id, head), ended=flags & END_STREAM != 0)


def _open(conn: Link, stream: Stream, *, ended: bool) -> None:
    head = stream.head
    conn.streams[stream.id] = stream
    conn.metrics.streams_opened += 1
    stream.remote_closed = ended
    if head.factory is None:
        _refuse(stream, head)
        return
    if head.timeout_s is not None:
        stream.timer = conn.loop.call_later(head.timeout_s, conn.expire, stream)
    try:
        handler = head.factory(stream, head.fields)
    except Exception as error:  # noqa: BLE001 - a handler may raise anything
        conn.handler_failed(stream, error)
        return
    if stream.finished:
        return
    stream.handler = handler
    stream.on_message = handler.on_message
    if ended:
        conn.half_close(stream)


def _refuse(stream: Stream, head: RequestHead) -> None:
    if head.http_error:
        stream.refuse(head.http_error, head.reason, with_body=not head.is_head)
    else:
        stream.finish(head.grpc_error, head.reason)


def _on_trailers(conn: Link, stream: Stream, flags: int, block: bytes) -> None:
    try:
        fields = conn.reader.fields(block, conn.decoder)
    except OversizedHeadersError:
        conn.fail(stream, GrpcStatus.RESOURCE_EXHAUSTED, "the trailers are too large")
        return
    if stream.remote_closed:
        raise StreamFault(ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM")
    if not flags & END_STREAM:
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM")
    check_regular(fields)
    conn.half_close(stream)
