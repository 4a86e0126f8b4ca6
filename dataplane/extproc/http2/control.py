"""Frames that carry no request: settings, pings, windows, resets, priorities, and what is unknown."""

from __future__ import annotations

from dataplane.extproc.http2.constants import (
    ACK,
    DEFAULT_MAX_FRAME_SIZE,
    LARGEST_MAX_FRAME_SIZE,
    MAX_WINDOW,
    PING,
    SETTING,
    SETTINGS,
    SETTINGS_ENABLE_PUSH,
    SETTINGS_INITIAL_WINDOW_SIZE,
    SETTINGS_MAX_FRAME_SIZE,
    STREAM_ID_MASK,
    WORD,
    ErrorCode,
)
from dataplane.extproc.http2.errors import ConnectionFault, StreamFault
from dataplane.extproc.http2.limits import Flood
from dataplane.extproc.http2.link import Link
from dataplane.extproc.http2.payload import on_late_frame

SMALL_INCREMENT = 64
MAX_SEND_FRAME = 256 * 1024
"""We cut our own DATA here even if the peer takes more, so that streams get their turns."""


def on_settings(conn: Link, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
    """SETTINGS of the peer, or its ACK of ours."""
    if stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
    conn.floods.count(Flood.SETTINGS)
    if flags & ACK:
        if end != start:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ACK with a payload")
        # From here on the peer's header blocks depend on no state.
        conn.decoder = None
        return
    if (end - start) % SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS is not a list of settings")
    window = conn.peer_initial_window
    for identifier, value in SETTING.iter_unpack(data[start:end]):
        if identifier == SETTINGS_INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "initial window is too large")
            window = value
        elif identifier == SETTINGS_MAX_FRAME_SIZE:
            if not DEFAULT_MAX_FRAME_SIZE <= value <= LARGEST_MAX_FRAME_SIZE:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "max frame size is out of range")
            _set_frame_size(conn, min(value, MAX_SEND_FRAME))
        elif identifier == SETTINGS_ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
    conn.write_frame(SETTINGS, ACK, 0, b"")
    if window != conn.peer_initial_window:
        _set_initial_window(conn, window)


def _set_frame_size(conn: Link, size: int) -> None:
    conn.peer_frame_size = size
    if conn.send_frame_limit:
        conn.send_frame_limit = size


def _set_initial_window(conn: Link, window: int) -> None:
    """Shift the window of every stream; it may become negative."""
    shift = window - conn.peer_initial_window
    conn.peer_initial_window = window
    for stream in conn.streams.values():
        stream.send_window += shift
        if stream.send_window > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
        stream.wait_turn()
    conn.pump()


def on_ping(conn: Link, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
    """PING, or the ACK of the one that a drain sends."""
    if stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
    if end - start != 8:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING is not 8 bytes")
    conn.floods.count(Flood.PING)
    if not flags & ACK:
        conn.write_frame(PING, ACK, 0, data[start:end])
    elif conn.draining:
        conn.finish_goaway()


def on_goaway(conn: Link, _data: bytes, start: int, end: int, _flags: int, stream_id: int) -> None:
    """The client opens no more streams; running ones go on and it closes the connection."""
    if stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
    if end - start < 8:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is cut short")
    conn.floods.count(Flood.UNKNOWN_FRAME)


def on_window_update(conn: Link, data: bytes, start: int, end: int, _flags: int, stream_id: int) -> None:
    """More room for what we send."""
    if end - start != WORD.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not 4 bytes")
    increment = WORD.unpack_from(data, start)[0] & STREAM_ID_MASK
    if stream_id == 0:
        if not increment:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        useful = bool(conn.ready)
        conn.send_window += increment
        if conn.send_window > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
    else:
        stream = conn.streams.get(stream_id)
        if stream is None:
            on_late_frame(conn, stream_id)
            return
        if not increment:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        useful = stream.queued > 0
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is too large")
        stream.wait_turn()
    if not useful or increment < SMALL_INCREMENT:
        conn.floods.count(Flood.WINDOW_UPDATE)
    conn.pump()


def on_rst_stream(conn: Link, _data: bytes, start: int, end: int, _flags: int, stream_id: int) -> None:
    """The peer gives a stream up."""
    if end - start != WORD.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not 4 bytes")
    stream = conn.streams.get(stream_id)
    if stream is None:
        on_late_frame(conn, stream_id)
        return
    conn.metrics.streams_reset += 1
    if not stream.head_sent and stream.recv_window == conn.limits.stream_window:
        conn.floods.count(Flood.RAPID_RESET)
    conn.cancel(stream)


def on_priority(conn: Link, data: bytes, start: int, end: int, _flags: int, stream_id: int) -> None:
    """Priorities are read for their faults only."""
    if stream_id == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
    conn.floods.count(Flood.PRIORITY)
    if end - start != 5:
        _priority_fault(conn, stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes")
    if WORD.unpack_from(data, start)[0] & STREAM_ID_MASK == stream_id:
        _priority_fault(conn, stream_id, ErrorCode.PROTOCOL_ERROR, "stream depends on itself")


def _priority_fault(conn: Link, stream_id: int, code: ErrorCode, reason: str) -> None:
    """A stream error, unless there is no stream to reset: RST_STREAM on an idle stream is itself an error."""
    if stream_id in conn.streams:
        raise StreamFault(code, reason)
    raise ConnectionFault(code, reason)


def on_push_promise(_conn: Link, _data: bytes, _start: int, _end: int, _flags: int, _stream_id: int) -> None:
    """A client may not push."""
    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")


def on_unknown(conn: Link, _data: bytes, _start: int, _end: int, _flags: int, _stream_id: int) -> None:
    """Extension frames are ignored, within reason."""
    conn.floods.count(Flood.UNKNOWN_FRAME)
