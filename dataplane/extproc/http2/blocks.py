"""Header blocks of responses, encoded once.

Every field is an index into the static table or a literal without indexing, so a block depends on no state
and can be a constant. The one exception is the first block of a connection: it starts with a dynamic table
size update to 0, which is what an encoder owes when the peer's SETTINGS lower the table and costs one byte
when they do not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from dataplane.extproc.http2.constants import GrpcStatus

TABLE_SIZE_ZERO: Final = b"\x20"

_STATUS_200: Final = b"\x88"
_STATUS_NAME: Final = b"\x08"
_ALLOW_NAME: Final = b"\x0f\x07"
_CONTENT_LENGTH_NAME: Final = b"\x0f\x0d"
_CONTENT_TYPE_NAME: Final = b"\x0f\x10"
_NEW_NAME: Final = b"\x00"

MAX_GRPC_MESSAGE: Final = 1024
"""Bytes of a status message that are sent, after percent-encoding."""

_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}


def _integer(value: int, prefix_bits: int) -> bytes:
    """RFC 7541 section 5.1; the bits above the prefix are zero."""
    full = (1 << prefix_bits) - 1
    if value < full:
        return bytes([value])
    encoded = bytearray([full])
    value -= full
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string(value: bytes) -> bytes:
    """A string literal without Huffman coding."""
    return _integer(len(value), 7) + value


def _field(name: bytes, value: bytes) -> bytes:
    return _NEW_NAME + string(name) + string(value)


RESPONSE_HEAD: Final = _STATUS_200 + _CONTENT_TYPE_NAME + string(b"application/grpc")
OK_TRAILERS: Final = _field(b"grpc-status", b"0")
_ACCEPT_ENCODING: Final = _field(b"grpc-accept-encoding", b"identity,gzip")


def percent_encoded(message: str) -> bytes:
    """A grpc-message: printable ASCII but for "%" as it is, the rest as %XX, cut at a whole character."""
    encoded = bytearray()
    for character in message:
        raw = character.encode("utf-8", "replace")
        piece = raw if raw[0] in _PLAIN else b"".join(b"%%%02X" % byte for byte in raw)
        if len(encoded) + len(piece) > MAX_GRPC_MESSAGE:
            break
        encoded += piece
    return bytes(encoded)


@lru_cache(maxsize=256)
def trailers(status: int, message: str) -> bytes:
    """Block of the trailers that follow a response; UNIMPLEMENTED also says which encodings are."""
    block = _field(b"grpc-status", str(status).encode())
    if message:
        block += _field(b"grpc-message", percent_encoded(message))
    return block + _ACCEPT_ENCODING if status == GrpcStatus.UNIMPLEMENTED else block


@lru_cache(maxsize=64)
def http_error(status: int, body_size: int) -> bytes:
    """Block of an HTTP response that is not gRPC; 405 names the one method there is."""
    block = _STATUS_NAME + string(str(status).encode())
    block += _CONTENT_TYPE_NAME + string(b"text/plain; charset=utf-8")
    block += _CONTENT_LENGTH_NAME + string(str(body_size).encode())
    return block + _ALLOW_NAME + string(b"POST") if status == 405 else block
