"""The extension points around scheduling: parse, produce data, prepare the request, observe the response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from dataplane.headers import Headers
from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.request import InferenceRequest, ParsedBody, ResponseSummary, Usage
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
class DataProducer(Protocol):
    """Computes attributes of a request before scheduling. Runs in dependency order."""

    @property
    def produces(self) -> Sequence[DataKey[Any]]:
        """Keys this instance publishes under; ``attributes.produced_by`` tells them from its name."""
        ...

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None: ...


@runtime_checkable
class Consumer(Protocol):
    """Declares which attributes a plugin reads, so that missing producers are created."""

    @property
    def consumes(self) -> Sequence[DataKey[Any]]: ...


@runtime_checkable
class PreRequest(Protocol):
    """Told of the decision before the request leaves; may set headers for the model server."""

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None: ...


@runtime_checkable
class FirstByteObserver(Protocol):
    """Told once when the first byte of the response body passes."""

    def on_first_byte(self, request: InferenceRequest) -> None: ...


@runtime_checkable
class ResponseObserver(Protocol):
    """Told once when a scheduled request's response is over, however it ended."""

    def on_response_end(self, request: InferenceRequest, summary: ResponseSummary) -> None: ...


@runtime_checkable
class EndpointObserver(Protocol):
    """Told when endpoints come and go."""

    def on_endpoint_added(self, endpoint: Endpoint) -> None: ...

    def on_endpoint_removed(self, endpoint: Endpoint) -> None: ...
