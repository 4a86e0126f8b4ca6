"""The extension points around scheduling: parse, read headers, screen, produce data, admit, prepare the
request, and observe the response or add to its headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from dataplane.extproc.events import BodyTransform, Metadata
from dataplane.headers import Headers
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import DataKey, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.request import InferenceRequest, ParsedBody, ResponseSummary
from epp.interfaces.scheduling import SchedulingResult


class ResponseReader(Protocol):
    """Reads one response body as it passes, chunk by chunk; chunks may be cut anywhere."""

    events: int
    """Server-sent data events seen so far, [DONE] not counted."""

    def feed(self, chunk: bytes) -> None: ...

    def finish(self) -> Usage | None:
        """Usage found, once the body has ended or broken off."""
        ...


@runtime_checkable
class Parser(Protocol):
    """Understands the bodies of some API. Raises ``BadRequestError`` for what it must refuse."""

    claims: ClassVar[Sequence[str]]
    """Path suffixes, without the leading slash, matched on whole path segments; empty = a fallback."""

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody: ...

    def response_reader(self, streaming: bool) -> ResponseReader | None:
        """A reader for one response; None when this API's responses are of no interest."""
        ...


@runtime_checkable
class ModelNameRewriter(Protocol):
    """What a parser may be able to do: have another model asked for, without the client noticing."""

    def rename_model(self, body: bytes, parsed: ParsedBody, target: str) -> bytes:
        """The body, which ``parse`` has understood, with ``target`` as its model and no other change.

        ``BadRequestError`` when it has no place for one.
        """
        ...

    def model_restorer(self, streaming: bool, target: str, model: str) -> BodyTransform | None:
        """What replaces ``target`` by ``model`` in a JSON response, or with ``streaming`` in its events.

        None when responses of this API name no model.
        """
        ...


@runtime_checkable
class RequestHeaderProcessor(Protocol):
    """Reads the headers of a parsed request, first of all plugins and in configured order.

    May leave attributes, which it declares as ``produces``, and may set ``request.fairness_id``; the fairness
    id a caller sends has precedence. A ``RequestError`` ends the request.
    """

    def process_request_headers(self, request: InferenceRequest) -> None: ...


@runtime_checkable
class Screener(Protocol):
    """Narrows the candidates before anything is computed for them or a profile sees them.

    Each screener is given the full set, and what all of them keep remains; nobody left is 503. A request is
    screened once, and once more when nobody was found and ejected endpoints are to be used after all.
    """

    def screen(self, request: InferenceRequest, candidates: Candidates) -> Candidates: ...


@runtime_checkable
class Provider(Protocol):
    """Declares which attributes a plugin leaves, so that consumers of them need no default producer."""

    @property
    def produces(self) -> Sequence[DataKey[Any]]:
        """Keys this instance publishes under; ``attributes.produced_by`` tells them from its name."""
        ...


@runtime_checkable
class DataProducer(Provider, Protocol):
    """Computes attributes of a request before scheduling. Runs in dependency order.

    A ``RequestError`` ends the request. Any other failure is logged, counted and costs this producer's data:
    the producers after it run and the request goes on, so who reads an attribute must do without it.
    """

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None: ...


@runtime_checkable
class Preparer(Protocol):
    """Asks another process for something before the request is decided on, which waits meanwhile.

    The decision is made in one go once all of it is there. Nothing is waited for, and no task is made, for
    requests that need no preparation. It must bound its own time; a failure costs the data alone, as one of
    a producer does. A client that leaves cancels it.
    """

    name: TypedName
    prepares: bool
    """Whether any request needs it, as configured."""

    def needs_preparation(self, request: InferenceRequest) -> bool:
        """Whether there is something to wait for. Must not block."""
        ...

    async def prepare(self, request: InferenceRequest) -> None:
        """Leave on the request what was asked for."""
        ...


@runtime_checkable
class Closing(Protocol):
    """Holds something open, such as connections, that is let go when another configuration takes over."""

    async def close(self) -> None:
        """Called once no new request comes to the plugin; those under way must do without."""
        ...


@runtime_checkable
class Consumer(Protocol):
    """Declares which attributes a plugin reads, so that missing producers are created."""

    @property
    def consumes(self) -> Sequence[DataKey[Any]]: ...


@runtime_checkable
class OptionalConsumer(Protocol):
    """Declares what a plugin uses if it is there and can do without; nothing is created for it."""

    @property
    def may_consume(self) -> Sequence[DataKey[Any]]: ...


@runtime_checkable
class Admitter(Protocol):
    """Has a say in whether a request is scheduled at all, when its data is there; in configured order."""

    def admit(self, request: InferenceRequest, candidates: Candidates) -> str | None:
        """None to admit; else the reason, and the client gets 429 with it."""
        ...


@runtime_checkable
class PreRequest(Protocol):
    """Told of the decision before the request leaves; may set headers for the model server.

    Who sets the destination header has the chosen endpoint reached at that address instead of its own.
    """

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None: ...


class ResponseHead(msgspec.Struct):
    """The head of the response to a scheduled request."""

    status: int
    """HTTP status; 0 when it is missing or not a number."""
    headers: Headers
    result: SchedulingResult
    served: str = ""
    """``ip:port`` that Envoy says served it; empty when it does not say."""
    metadata: Metadata | None = None
    """What Envoy says with the response; None when that is nothing."""


@runtime_checkable
class ResponseHeaderProcessor(Protocol):
    """Told when response headers pass; may set headers for the client, by lower-case name.

    Headers that the picker itself reads or writes cannot be set. A failure is logged and costs the headers
    of this plugin, never the response.
    """

    def process_response_headers(
        self, request: InferenceRequest, response: ResponseHead, set_headers: dict[str, str]
    ) -> None: ...


@runtime_checkable
class FirstByteObserver(Protocol):
    """Told once when the first byte of the response body passes."""

    def on_first_byte(self, request: InferenceRequest) -> None: ...


@runtime_checkable
class ResponseReporter(Protocol):
    """Asked at the end of a response body what Envoy is to be told of it, as dynamic metadata."""

    def report_response(
        self, request: InferenceRequest, usage: Usage | None
    ) -> Mapping[str, Mapping[str, Any]] | None:
        """Values by namespace and name. ``usage`` is None when the response reported none."""
        ...


@runtime_checkable
class ResponseObserver(Protocol):
    """Told once when a scheduled request's response is over, however it ended."""

    def on_response_end(self, request: InferenceRequest, summary: ResponseSummary) -> None: ...


@runtime_checkable
class EndpointObserver(Protocol):
    """Told when endpoints come and go."""

    def on_endpoint_added(self, endpoint: Endpoint) -> None: ...

    def on_endpoint_removed(self, endpoint: Endpoint) -> None: ...


@runtime_checkable
class EndpointChangeObserver(Protocol):
    """Told when an endpoint has new labels; what an observer of endpoints may offer besides."""

    def on_endpoint_changed(self, endpoint: Endpoint) -> None: ...
