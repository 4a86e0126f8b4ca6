"""gRPC messages out of pieces of any size, and their decompression. Knows no frames and no streams.

A message is a flag byte, a 32-bit length and that many bytes. Pieces are kept as they came and joined once,
so a message of n bytes costs O(n) however it is cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from dataplane.extproc.http2.constants import MESSAGE_PREFIX, MESSAGE_PREFIX_SIZE, GrpcStatus
from dataplane.extproc.http2.errors import MessageFault

_GZIP_WINDOW = 31


class MessageBuffer:
    """The unfinished message of one stream."""

    __slots__ = ("_flag", "_limit", "_missing", "_pieces", "_prefix", "held")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = b""
        self._pieces: list[bytes] = []
        self._flag = 0
        self._missing = -1
        self.held = 0

    @property
    def is_empty(self) -> bool:
        """True between messages."""
        return self._missing < 0 and not self._prefix

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Flag and bytes of each message that ``piece`` completes; raises MessageFault for one that is too
        large."""
        start = 0
        while True:
            if self._missing < 0:
                if self._prefix:
                    piece, start = self._prefix + piece[start:], 0
                    self._prefix = b""
                if len(piece) - start < MESSAGE_PREFIX_SIZE:
                    self._prefix = piece[start:]
                    self.held = len(self._prefix)
                    return
                self._begin(piece, start)
                start += MESSAGE_PREFIX_SIZE
            stop = start + self._missing
            if stop > len(piece):
                if start < len(piece):
                    self._keep(piece[start:])
                return
            self._pieces.append(piece[start:stop])
            start = stop
            yield self._flag, self._finish()

    def _begin(self, piece: bytes, start: int) -> None:
        self._flag, self._missing = MESSAGE_PREFIX.unpack_from(piece, start)
        self.held = 0
        if self._missing > self._limit:
            reason = f"message of {self._missing} bytes is larger than {self._limit}"
            raise MessageFault(GrpcStatus.RESOURCE_EXHAUSTED, reason)

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._missing -= len(piece)
        self.held += len(piece)

    def _finish(self) -> bytes:
        pieces = self._pieces
        message = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._missing = -1
        self.held = 0
        return message


def decoded(flag: int, message: bytes, encoding: bytes, limit: int) -> bytes:
    """A flagged message as the peer's application wrote it; raises MessageFault when it cannot be had."""
    if flag != 1:
        raise MessageFault(GrpcStatus.INTERNAL, f"message flag {flag} is not defined")
    if encoding == b"gzip":
        return _gunzipped(message, limit)
    if encoding in (b"identity", b""):
        raise MessageFault(GrpcStatus.INTERNAL, "compressed message without grpc-encoding")
    name = encoding.decode("ascii", "replace")[:40]
    raise MessageFault(
        GrpcStatus.UNIMPLEMENTED, f"grpc-encoding {name} is not supported; use identity or gzip"
    )


def _gunzipped(message: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(message, limit + 1)
    except zlib.error as error:
        raise MessageFault(GrpcStatus.INTERNAL, f"gzip: {error}") from error
    if len(plain) > limit:
        reason = f"message is larger than {limit} bytes once decompressed"
        raise MessageFault(GrpcStatus.RESOURCE_EXHAUSTED, reason)
    # One member only: a message of many tiny ones would cost the square of its size.
    if not unpacker.eof or unpacker.unused_data:
        raise MessageFault(GrpcStatus.INTERNAL, "gzip: the message is not one whole member")
    return plain
