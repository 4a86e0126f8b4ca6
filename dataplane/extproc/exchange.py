"""The seam between the ext_proc library and what a process does with a request.

An ``Exchange`` is made for each stream. It sees one request and one response, whole or in chunks as it
asks for, and never a frame, a protobuf message or a body mode. All methods are plain functions on the
event loop's thread; a decision that has to wait returns None and calls ``resume`` later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from dataplane.errors import RequestError
from dataplane.extproc.events import BodyRest, Metadata, MetadataValues, Proceed, Reject
from dataplane.headers import DROPPED_REASON, Headers

Decision = Proceed | Reject
Resume = Callable[[Decision | BodyRest | Exception], None]
"""Takes what ``on_request`` would have returned or raised, or what a response's body waits for."""


class Ending(StrEnum):
    """Why an exchange is over."""

    NATURAL = "natural"
    """The response has passed completely, or as much of it as Envoy was configured to show."""
    REJECTED = "rejected"
    """It was answered by us."""
    DISCONNECT = "client-disconnect"
    """Envoy ended the stream early: the client left, or the upstream broke off."""
    DEADLINE = "deadline"
    """The request phase took longer than the session's own deadline."""
    ERROR = "error"
    """The stream broke a rule of the protocol, or a handler failed."""


class HttpRequest(msgspec.Struct):
    """A request as far as it is known when a decision is due."""

    headers: Headers
    body: bytes | None
    """The whole body; ``b""`` when there is none; None when Envoy does not send it in time."""
    metadata: Metadata | None
    """Newest metadata of the request phase."""


class HttpResponse(msgspec.Struct):
    """The head of a response."""

    headers: Headers
    status: int
    """0 when ``:status`` is missing or not a number."""
    end_of_stream: bool
    metadata: Metadata | None
    is_shown: bool = True
    """Whether all of its body is shown, if it has one."""


class Exchange(Protocol):
    """What a processor does with one HTTP exchange."""

    needs_request_body: bool
    """Whether the decision is made on the whole body. Read once, at the request headers."""
    observes_response_body: bool
    """Whether ``on_response_chunk`` is to be called. Read at every chunk."""

    def on_request(self, request: HttpRequest, resume: Resume) -> Decision | None:
        """Decide, or return None and call ``resume`` later. ``RequestError`` becomes a rejection.

        Not called when a stream starts with its response, or the response overtakes the request's body.
        """
        ...

    def on_response_headers(self, response: HttpResponse) -> Decision:
        """Changes to the response headers, or a replacement of the whole response.

        A response that comes before the decision is Envoy's own (413, 504): the decision is void.
        """
        ...

    def on_response_chunk(self, chunk: bytes, end: bool) -> MetadataValues | None:
        """Watch the response body pass. ``end`` comes exactly once, if the body ends at all.

        What is returned at the end becomes dynamic metadata, sent with the last answer about the body.
        An exception is reported and ends the watching, not the response.
        """
        ...

    def on_end(self, ending: Ending) -> None:
        """The exchange is over. Called exactly once, whatever happened."""
        ...


def too_late(outcome: Decision | BodyRest | Exception) -> None:
    """Takes what comes after the stream has gone."""


def rejection(error: RequestError) -> Reject:
    """How a client sees a ``RequestError``: OpenAI-style JSON, ``Retry-After``, dropped reason."""
    headers: list[tuple[str, bytes]] = [("content-type", b"application/json")]
    if error.retry_after_s is not None:
        headers.append(("retry-after", b"%d" % error.retry_after_s))
    if error.dropped_reason:
        headers.append((DROPPED_REASON, error.dropped_reason.encode()))
    return Reject(error.status, error.body(), headers, f"pointsman_{error.code}")
