"""Every limit of the transport, each with a name, a unit and the reason for its default.

Flood limits count per connection and per flood interval (`Limits.flood_interval_s`); what goes past one
ends the connection with GOAWAY ENHANCE_YOUR_CALM. They stand far above what Envoy, grpc-go or grpcio send
and far below what would cost a noticeable share of a core. The counters are plain integers that the owner
of the connection clears by `Connection.tick`; no clock is read while frames are handled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from dataplane.extproc.http2.constants import (
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_WINDOW,
    LARGEST_MAX_FRAME_SIZE,
    MAX_WINDOW,
    ErrorCode,
)
from dataplane.extproc.http2.errors import ConnectionFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps of one connection unless they say otherwise. Sizes in bytes, times in seconds."""

    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    """Largest frame payload accepted. Envoy cuts its DATA at 16 KiB whatever is announced."""

    max_concurrent_streams: int = 4096
    """Beyond it REFUSED_STREAM; Envoy then opens a further connection."""

    stream_window: int = 1024 * 1024
    """What a peer may send on one stream before it is topped up, at half. Holds most bodies without a
    top-up."""

    connection_window: int = 16 * 1024 * 1024
    """The same for all streams of a connection together."""

    max_message_size: int = 16 * 1024 * 1024
    """Largest gRPC message accepted, before and after decompression; beyond it grpc-status 8. Envoy sends
    up to its buffer limit, 1 MiB by default."""

    max_reassembly_bytes: int = 64 * 1024 * 1024
    """Bytes of unfinished messages one connection may hold; the stream that goes past it ends with
    grpc-status 8."""

    send_high_water: int = 256 * 1024
    """A stream that has more than this waiting to be sent gets no further receive window until it has
    less."""

    max_stream_send_buffer: int = 32 * 1024 * 1024
    """Bytes held back for one stream by the peer's flow control; beyond it the stream is reset."""

    max_connection_send_buffer: int = 128 * 1024 * 1024
    """The same for all streams of a connection together."""

    max_server_streams: int = 65_536
    """Streams of all connections of a server together; beyond it REFUSED_STREAM."""

    max_server_buffer: int = 1024 * 1024 * 1024
    """Bytes held for all connections of a server together, unfinished messages and waiting answers; the
    stream that goes past it ends as at the limits of its connection."""

    max_control_backlog: int = 1024 * 1024
    """Bytes of answers other than DATA written while the socket is behind; beyond it the connection is
    dropped."""

    max_header_block: int = 32 * 1024
    """Compressed size of one header block over HEADERS and all its CONTINUATION frames."""

    max_header_list: int = 64 * 1024
    """Decompressed size as RFC 9113 counts it: name + value + 32 for each field. Beyond it HTTP 431."""

    max_continuations: int = 32
    """CONTINUATION frames in one header block; `max_header_block` holds twice in as many frames of 1 KiB."""

    max_cached_block: int = 4096
    """Longer header blocks are decoded each time."""

    max_cached_heads: int = 1024
    """Header blocks remembered by their bytes; Envoy repeats the same few."""

    max_refused_body: int = 32 * 1024
    """Body bytes read and thrown away on a stream that was answered with an HTTP error."""

    max_remembered_resets: int = 4096
    """Streams ended here of which frames still under way are ignored instead of being an error."""

    flood_interval_s: float = 0.25
    """What the limits below count in."""

    max_rapid_resets: int = 10_000
    """Streams the peer resets before it has sent any DATA or got any answer. Envoy does that to thousands
    within a second when its clients give up at once; this many in an interval take a core to themselves."""

    max_stream_errors: int = 1000
    """Streams refused or reset here for a fault of the peer."""

    max_pings: int = 500
    max_settings: int = 50
    max_priorities: int = 500
    max_idle_window_updates: int = 5000
    """Window updates that set nothing free that waited, or less than 64 bytes."""

    max_empty_data: int = 500
    """DATA frames without payload that do not end the stream."""

    max_tiny_data: int = 5000
    """DATA frames under 256 bytes that complete no message."""

    max_late_frames: int = 5000
    """Frames for streams that are gone; a stream that ends here early may draw some."""

    max_unknown_frames: int = 500
    """Extension frames and GOAWAY."""

    preface_timeout_s: float = 10.0
    """From accept to the client's SETTINGS, from our SETTINGS to their ACK, and for one header block."""

    linger_s: float = 1.0
    """After a GOAWAY with an error, reading goes on this long so that the peer gets to see it."""

    def __post_init__(self) -> None:
        ranges = {
            "max_frame_size": (DEFAULT_MAX_FRAME_SIZE, LARGEST_MAX_FRAME_SIZE),
            "stream_window": (DEFAULT_WINDOW, MAX_WINDOW),
            "connection_window": (DEFAULT_WINDOW, MAX_WINDOW),
            "max_concurrent_streams": (1, MAX_WINDOW),
            "max_message_size": (1, 0xFFFF_FFFF),
        }
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name}: {getattr(self, name)} is not within {low} and {high}")


class Flood(IntEnum):
    """Kinds of frames that are counted; the value is the index of the counter."""

    PING = 0
    SETTINGS = 1
    RAPID_RESET = 2
    STREAM_ERROR = 3
    PRIORITY = 4
    WINDOW_UPDATE = 5
    EMPTY_DATA = 6
    TINY_DATA = 7
    LATE_FRAME = 8
    UNKNOWN_FRAME = 9
    CONTINUATION = 10


class FloodGuard:
    """The counters of one connection."""

    __slots__ = ("_caps", "_counts", "interval")

    def __init__(self, limits: Limits) -> None:
        self._caps = (
            limits.max_pings,
            limits.max_settings,
            limits.max_rapid_resets,
            limits.max_stream_errors,
            limits.max_priorities,
            limits.max_idle_window_updates,
            limits.max_empty_data,
            limits.max_tiny_data,
            limits.max_late_frames,
            limits.max_unknown_frames,
            limits.max_continuations,
        )
        self._counts = [0] * len(Flood)
        self.interval = 0

    def count(self, kind: Flood) -> None:
        """One more of ``kind``; raises ConnectionFault past its limit."""
        self._counts[kind] += 1
        if self._counts[kind] > self._caps[kind]:
            name = kind.name.lower()
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many: {name}", flood=name)

    def clear(self, kind: Flood) -> None:
        """Forget one kind; CONTINUATION is counted per header block, not per interval."""
        self._counts[kind] = 0

    def next_interval(self) -> None:
        """Forget every kind but CONTINUATION."""
        self.interval += 1
        self._counts[: Flood.CONTINUATION] = [0] * Flood.CONTINUATION
