"""The seam between the transport and what is served on it.

The transport calls a `StreamFactory` when a stream opens and gives it a `StreamWriter`; the handler it
returns hears of whole gRPC messages. All calls happen on the event loop's thread and none may block.

How a stream ends: either the handler calls `StreamWriter.finish`, and hears nothing after that, or the
transport ends it (reset by the peer, connection lost, broken protocol, deadline, drain time-out, an exception
in the handler) and calls `StreamHandler.on_cancel` once. Never both. A reset is no sign of failure: Envoy
ends every ext_proc stream with RST_STREAM as soon as it needs no further answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

Headers = Sequence[tuple[bytes, bytes]]
"""Fields in wire order, pseudo header fields included, names in lower case."""


class StreamWriter(Protocol):
    """The sending half of one stream."""

    def send(self, *parts: bytes) -> None:
        """Queue one gRPC message, the concatenation of ``parts``. Dropped when the stream is no longer
        open."""

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the stream with trailers once everything queued is sent. Further calls do nothing."""

    @property
    def is_open(self) -> bool:
        """False after `finish` and after the transport ended the stream."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes queued here because the peer's flow control or the socket holds them back."""


class StreamHandler(Protocol):
    """The receiving half of one stream. An exception ends this stream alone, with grpc-status 13."""

    def on_message(self, message: bytes) -> None:
        """One whole gRPC message, decompressed."""

    def on_half_close(self) -> None:
        """The peer has sent everything."""

    def on_cancel(self) -> None:
        """The transport ended the stream; what the handler holds for it can be let go."""


@runtime_checkable
class DrainAware(Protocol):
    """A handler whose stream has no natural end and that should finish when the connection drains."""

    def on_drain(self) -> None:
        """No new streams are taken; running ones have until the drain's time-out."""


StreamFactory = Callable[[StreamWriter, Headers], StreamHandler]

Services = Mapping[bytes, StreamFactory]
"""Path, such as ``b"/grpc.health.v1.Health/Check"``, to what serves it."""
