"""Header blocks to validated requests, and the cache that makes the usual ones free.

Our SETTINGS announce a header table of size 0. Once the peer has acknowledged that, a block means the same
whenever and on whichever connection it comes, so its bytes are the key of a cache shared by the connections
of a server. Until then each connection has its own decoder with the default table. `hpack` decodes; it is
asked only on a miss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import hpack

from dataplane.extproc.http2.constants import ErrorCode, GrpcStatus
from dataplane.extproc.http2.errors import ConnectionFault, StreamFault
from dataplane.extproc.http2.interface import Services, StreamFactory
from dataplane.extproc.http2.limits import Limits

Fields = tuple[tuple[bytes, bytes], ...]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?:[^\x00\r\n\t ](?:[^\x00\r\n]*[^\x00\r\n\t ])?)?")
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_CONNECTION_SPECIFIC = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_TIMEOUT_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request whose header block is well-formed: what serves it, or how it is refused."""

    fields: Fields
    factory: StreamFactory | None = None
    http_error: int = 0
    grpc_error: int = 0
    reason: str = ""
    encoding: bytes = b""
    timeout_s: float | None = None
    content_length: int | None = None
    is_head: bool = False


class OversizedHeadersError(Exception):
    """The header list is larger than announced; the decoder's state is still good."""


class HeadReader:
    """Decodes, validates and remembers the header blocks of one server."""

    __slots__ = ("_decoder", "_limits", "_old", "_services", "known")

    def __init__(self, services: Services, limits: Limits) -> None:
        self._services = services
        self._limits = limits
        self._decoder = self.new_decoder()
        self._decoder.header_table_size = 0
        self._decoder.max_allowed_table_size = 0
        # Two generations: what is asked for again moves to the young one, so a run of blocks that never
        # repeat pushes out only what was not asked for in between.
        self.known: dict[bytes, RequestHead] = {}
        self._old: dict[bytes, RequestHead] = {}

    def new_decoder(self) -> hpack.Decoder:
        """A decoder with the default table, for a connection whose peer has not acknowledged our SETTINGS."""
        return hpack.Decoder(max_header_list_size=self._limits.max_header_list)

    def request(self, block: bytes, decoder: hpack.Decoder | None) -> RequestHead:
        """The request ``block`` stands for; ``decoder`` is None when blocks are stateless.

        Raises ConnectionFault when the block cannot be decoded, StreamFault when the request is malformed.
        """
        if decoder is None:
            head = self.known.get(block) or self._old.get(block)
            if head is not None:
                self._remember(block, head)
                return head
        try:
            fields = self.fields(block, decoder)
        except OversizedHeadersError:
            return RequestHead((), http_error=431, reason="the header list is too large")
        head = _validated(fields, self._services)
        if decoder is None:
            self._remember(block, head)
        return head

    def fields(self, block: bytes, decoder: hpack.Decoder | None) -> Fields:
        """The fields of ``block`` in order."""
        try:
            decoded = (decoder or self._decoder).decode(block, raw=True)
        except hpack.OversizedHeaderListError as error:
            if decoder is None:
                raise OversizedHeadersError from error
            # The table of this connection missed the rest of the block, so nothing after it can be decoded.
            reason = "header list is too large"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, flood="header_list") from error
        except hpack.HPACKError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, str(error)[:100]) from error
        return tuple((bytes(name), bytes(value)) for name, value in decoded)

    def _remember(self, block: bytes, head: RequestHead) -> None:
        if len(block) > self._limits.max_cached_block:
            return
        if len(self.known) >= self._limits.max_cached_heads // 2 and block not in self.known:
            self._old, self.known = self.known, {}
        self.known[block] = head


def _validated(fields: Fields, services: Services) -> RequestHead:
    pseudo: dict[bytes, bytes] = {}
    rest: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        if name[:1] != b":":
            rest.append((name, value))
        elif name not in _PSEUDO or name in pseudo or rest:
            raise _malformed(f"pseudo-header field {_shown(name)} is unknown, repeated or late")
        else:
            pseudo[name] = value
    check_regular(rest)
    return _understood(fields, pseudo, rest, services)


def check_regular(fields: list[tuple[bytes, bytes]] | Fields) -> None:
    """Raise StreamFault unless all are well-formed regular header fields."""
    for name, value in fields:
        if _NAME.fullmatch(name) is None:
            raise _malformed(f"header field name {_shown(name)} is not allowed")
        if _VALUE.fullmatch(value) is None:
            raise _malformed(f"value of header field {_shown(name)} is not allowed")
        if name in _CONNECTION_SPECIFIC or (name == b"te" and value.lower() != b"trailers"):
            raise _malformed(f"connection-specific header field {_shown(name)}")


def _understood(
    fields: Fields, pseudo: dict[bytes, bytes], rest: list[tuple[bytes, bytes]], services: Services
) -> RequestHead:
    method = pseudo.get(b":method", b"")
    path = pseudo.get(b":path", b"")
    if not method or (method != b"CONNECT" and not (path and pseudo.get(b":scheme"))):
        raise _malformed("the request lacks :method, :scheme or :path")
    if any(_VALUE.fullmatch(value) is None for value in pseudo.values()):
        raise _malformed("value of a pseudo-header field is not allowed")
    named = dict(rest)
    length = _content_length([value for name, value in rest if name == b"content-length"])
    if method != b"POST":
        reason = "only gRPC is served here: the method must be POST"
        is_head = method == b"HEAD"
        return RequestHead(fields, http_error=405, reason=reason, content_length=length, is_head=is_head)
    if not _is_grpc(named.get(b"content-type", b"")):
        reason = "only gRPC is served here: content-type must be application/grpc"
        return RequestHead(fields, http_error=415, reason=reason, content_length=length)
    timeout = named.get(b"grpc-timeout")
    parsed = _TIMEOUT.fullmatch(timeout) if timeout is not None else None
    if timeout is not None and parsed is None:
        reason = "grpc-timeout is malformed"
        return RequestHead(fields, grpc_error=GrpcStatus.INTERNAL, reason=reason, content_length=length)
    factory = services.get(path)
    if factory is None:
        reason = f"{_shown(path)} is not served here"
        return RequestHead(fields, grpc_error=GrpcStatus.UNIMPLEMENTED, reason=reason, content_length=length)
    return RequestHead(
        fields,
        factory,
        encoding=named.get(b"grpc-encoding", b"").lower(),
        timeout_s=int(parsed[1]) * _TIMEOUT_UNITS[parsed[2]] if parsed else None,
        content_length=length,
    )


def _content_length(values: list[bytes]) -> int | None:
    if not values:
        return None
    first = values[0]
    if not first.isdigit() or len(first) > 18 or any(value != first for value in values):
        raise _malformed("content-length is malformed")
    return int(first)


def _is_grpc(content_type: bytes) -> bool:
    """``application/grpc``, with a ``+subtype`` or parameters at most."""
    lowered = content_type.lower()
    return lowered.startswith(b"application/grpc") and lowered[16:17] in (b"", b"+", b";", b" ")


def _malformed(reason: str) -> StreamFault:
    return StreamFault(ErrorCode.PROTOCOL_ERROR, reason)


def _shown(value: bytes) -> str:
    return ascii(value[:60].decode("latin-1"))
