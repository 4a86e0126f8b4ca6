"""What goes wrong on a connection.

    ConnectionFault    the peer broke the protocol or a limit: GOAWAY with `code`, then the connection closes
    StreamFault        one stream broke the protocol: RST_STREAM with `code`
    MessageFault       one stream's gRPC messages cannot be read: trailers with `status`

They are raised while a frame is handled and never leave the connection.
"""

from __future__ import annotations

from dataplane.extproc.http2.constants import ErrorCode, GrpcStatus


class ConnectionFault(Exception):
    """Ends the connection. ``flood`` names the limit when that is what was broken."""

    def __init__(self, code: ErrorCode, reason: str, flood: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.flood = flood


class StreamFault(Exception):
    """Ends one stream with RST_STREAM."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class MessageFault(Exception):
    """Ends one stream with a gRPC status."""

    def __init__(self, status: GrpcStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
