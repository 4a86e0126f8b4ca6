"""What can happen on one ext_proc stream, and what can be answered.

Events come from Envoy, effects go back; ``codec`` turns both from and to protobuf and ``session`` decides
which effects an event has. Nothing here knows protobuf, HTTP/2 or time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from dataplane.headers import Headers

MetadataValues = Mapping[str, Mapping[str, Any]]
"""Dynamic metadata to set: namespace -> name -> value. Envoy takes those of namespaces it is told to."""


class BodyMode(IntEnum):
    """Envoy's body processing modes, with the numbers of its API."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4


class Metadata(Protocol):
    """Dynamic metadata that came with a message; decoded when asked for."""

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        """The values under one filter-metadata namespace; None when it was not sent.

        ``codec.MessageError`` when the peer sent bytes that are no metadata.
        """
        ...


class Modes(msgspec.Struct, frozen=True):
    """How Envoy is configured to treat bodies; it says so with the first message of a stream."""

    request: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    response: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    body_without_waiting: bool = False
    """STREAMED request bodies arrive before the header answer is sent, as much as Envoy buffers of them.

    A larger body, and one that ends in trailers, is held back until then: a decision that waits for it ends
    in Envoy's message timeout.
    """


class HeadersEvent(msgspec.Struct):
    """Request or response headers. ``end_of_stream``: no body and no trailers follow."""

    headers: Headers
    end_of_stream: bool
    metadata: Metadata | None
    modes: Modes | None
    """Set on the first message of a stream, when Envoy sends its protocol configuration."""


class RequestHeaders(HeadersEvent):
    """First message of a stream that starts in the request phase."""


class ResponseHeaders(HeadersEvent):
    """The upstream, or a local reply, has answered."""


class BodyEvent(msgspec.Struct):
    """One chunk. The end can ride on data, come as an empty chunk, or come twice."""

    body: bytes
    end_of_stream: bool
    metadata: Metadata | None
    modes: Modes | None = None
    """As with headers; a stream starts with a body when Envoy is configured to skip headers."""


class RequestBody(BodyEvent):
    """A chunk of the request body."""


class ResponseBody(BodyEvent):
    """A chunk of the response body."""


class RequestTrailers(msgspec.Struct):
    """The request ended with trailers; no body chunk carries the end."""

    metadata: Metadata | None


class ResponseTrailers(msgspec.Struct):
    """The response ended with trailers."""

    metadata: Metadata | None


Event = RequestHeaders | RequestBody | RequestTrailers | ResponseHeaders | ResponseBody | ResponseTrailers


class EndBody(Exception):
    """Raised by a transform to end the body at once, after ``last``; what would still come is dropped.

    In full duplex the client sees a regular end; STREAMED bodies go on empty until the upstream ends.
    """

    def __init__(self, last: bytes) -> None:
        super().__init__()
        self.last = last


class LaterBody(Exception):
    """Raised by a transform at the end of a body whose last bytes have to wait for somebody."""

    def __init__(self, start: Callable[[Callable[[bytes], None]], None]) -> None:
        """``start`` is called once, with what takes the bytes, which has to be called once."""
        super().__init__()
        self.start = start


class BodyRest(msgspec.Struct):
    """Bytes of a response's body that it has waited for: the last ones, or some in full duplex."""

    body: bytes
    end: bool = True
    """Whether the body ends with them, whatever of it still comes."""


Push = Callable[[bytes, bool], None]
"""Takes bytes that are sent on by themselves, and whether the body ends with them."""


class BodyTransform(Protocol):
    """Rewrites one body on its way, chunk by chunk."""

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """What is sent on for this chunk; the very chunk when nothing changes.

        Bytes may be held back for a later chunk, all of them only until ``end``, which comes once, if the
        body ends at all. STREAMED bodies that end in trailers have no answer left to carry them: what is
        held back then is lost. ``EndBody`` ends the body early, ``LaterBody`` later than it came; any other
        exception breaks the exchange off, since nobody knows what is missing.
        """
        ...


@runtime_checkable
class Pushing(BodyTransform, Protocol):
    """A transform that sends bytes on when it can, not only when some come."""

    def attach(self, push: Push) -> None:
        """In full duplex: what it has ready need not wait for the next chunk."""
        ...


class Proceed:
    """Go on: header changes, dynamic metadata, whether routes are to be matched again, and body changes.

    Values travel as raw bytes and replace what is there. An instance without body changes may be reused for
    many exchanges; the codec keeps its encoded form with it. Content-length follows the body by itself.
    """

    __slots__ = (
        "body",
        "clear_route_cache",
        "metadata",
        "remove_headers",
        "set_headers",
        "transform",
        "wire",
    )

    def __init__(
        self,
        set_headers: Sequence[tuple[str, bytes]] = (),
        remove_headers: Sequence[str] = (),
        metadata: MetadataValues | None = None,
        clear_route_cache: bool = False,
        body: bytes | None = None,
        transform: BodyTransform | None = None,
    ) -> None:
        self.set_headers = set_headers
        self.remove_headers = remove_headers
        self.metadata = metadata
        self.clear_route_cache = clear_route_cache
        self.body = body
        """In an answer to a request: what takes the place of its body. Unused when the body is not here."""
        self.transform = transform
        """In an answer to response headers: what the body is fed through. Unused when no body is shown."""
        self.wire: dict[int, bytes] = {}
        """Encoded forms by answer kind; written by the codec only."""


class Reject(msgspec.Struct):
    """Answer the client at once instead of the upstream."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, bytes]] = ()
    details: str = ""
    """Shown as RESPONSE_CODE_DETAILS in Envoy's access log."""


class AnswerHeaders(msgspec.Struct):
    """Answer to request or response headers."""

    response: bool
    proceed: Proceed


class AnswerBody(msgspec.Struct):
    """Answer to one body message outside full duplex, optionally with header changes."""

    response: bool
    proceed: Proceed
    body: bytes | None = None
    """What takes the place of the message's bytes; None leaves them as they are."""


class StreamBody(msgspec.Struct):
    """A piece of body sent on in full duplex; ``end_of_stream`` only on the last."""

    response: bool
    body: bytes
    end_of_stream: bool
    metadata: MetadataValues | None = None
    """Dynamic metadata to set."""


class AnswerTrailers(msgspec.Struct):
    """Answer to request or response trailers."""

    response: bool
    metadata: MetadataValues | None = None
    """Dynamic metadata to set."""


Effect = AnswerHeaders | AnswerBody | StreamBody | AnswerTrailers | Reject
