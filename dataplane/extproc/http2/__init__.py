"""A small, strict, server-side HTTP/2 for gRPC streams (RFC 9113, RFC 7541, gRPC over HTTP/2).

It exists because the transport decides what an ext_proc exchange costs: all frames of one read are answered
with one write, a header block seen before is one dictionary look-up, and a DATA frame that holds whole
messages is handled in one loop without intermediate objects.

    interface   what is served: StreamWriter, StreamHandler, StreamFactory
    connection  asyncio protocol: the loop over frames, errors, drain
    link        what connection, streams and frame handlers share: state, output, ends of streams
    stream      sending half of a stream: messages, flow control, trailers
    payload     receiving half off the fast path: padding, split or compressed messages
    requests    HEADERS and CONTINUATION: opens and half-closes streams
    control     SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM, PRIORITY
    heads       header blocks to validated requests, and the cache in front of that
    messages    gRPC messages out of pieces, gzip
    blocks, constants, errors, limits

Everything runs on the event loop's thread and nothing blocks. The event loop is used for two things only: a
flush when something is sent outside a read, and timers.
"""

from dataplane.extproc.http2.connection import Connection
from dataplane.extproc.http2.constants import ErrorCode, GrpcStatus
from dataplane.extproc.http2.interface import (
    DrainAware,
    Headers,
    Services,
    StreamFactory,
    StreamHandler,
    StreamWriter,
)
from dataplane.extproc.http2.limits import Limits

__all__ = [
    "Connection",
    "DrainAware",
    "ErrorCode",
    "GrpcStatus",
    "Headers",
    "Limits",
    "Services",
    "StreamFactory",
    "StreamHandler",
    "StreamWriter",
]
