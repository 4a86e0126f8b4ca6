"""Traces of requests: what the request path tells a tracer, when there is one.

The request path knows these protocols and records only; the package that makes and exports spans is loaded
by a process that traces. A tracer decides per request whether it is traced; a trace collects references and
times, and makes nothing of them before the request is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dataplane.errors import RequestError
from dataplane.headers import Headers
from dataplane.plugin.base import TypedName
from epp.interfaces.scheduling import ProfileResult, SchedulingResult


class TimedCall(NamedTuple):
    """One call of a plugin. Times are those of ``time.perf_counter``."""

    point: str
    """The extension point."""
    plugin: TypedName
    started: float
    ended: float


class ProfileRun(NamedTuple):
    """One profile's part in a decision."""

    name: str
    candidates: int
    started: float
    ended: float
    calls: Sequence[TimedCall]
    """Filters, scorers and the picker, as far as it came."""
    result: ProfileResult | None
    error: str
    """Why there is no result."""


class Scheduling(NamedTuple):
    """One run of the scheduler."""

    profiles: Sequence[ProfileRun]
    handler_calls: Sequence[TimedCall]
    """Calls of the profile handler."""
    result: SchedulingResult | None
    """None when there is none."""


class TracedRequest(Protocol):
    """What a trace reads of a request."""

    request_id: str
    model: str
    target_model: str


class ResponseFacts(Protocol):
    """What a trace reads of a response that is over."""

    status: int
    served: str
    cause: str
    ttft_s: float | None
    response_bytes: int

    @property
    def tokens(self) -> tuple[int | None, int | None, int | None]:
        """Prompt, cached and generated tokens as the model server reports them."""
        ...


class RequestSpans(Protocol):
    """The trace of one request. Ends with one call of ``refused`` or ``ended``."""

    is_recording: bool
    """Whether anything but ``propagation`` is of use."""
    trace_id: str
    """In hexadecimal digits, as collectors show it; empty when nothing is recorded."""
    propagation: Mapping[str, str]
    """Headers that make the model server part of the trace."""

    def scheduled(self, scheduling: Scheduling) -> None:
        """The scheduler has run."""
        ...

    def decided(self, request: TracedRequest, destination: str) -> None:
        """The request goes to ``ip:port``."""
        ...

    def refused(self, request: TracedRequest | None, error: RequestError) -> None:
        """The request is answered with an error; None when it could not even be read."""
        ...

    def ended(self, facts: ResponseFacts) -> None:
        """The response is over, however it ended."""
        ...


class RequestTracer(Protocol):
    """Begins traces."""

    def begin(self, headers: Headers) -> RequestSpans | None:
        """The trace of a request with these headers; None when it is part of one that is not recorded."""
        ...
