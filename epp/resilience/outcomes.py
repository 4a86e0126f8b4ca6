"""What the head of a response says about the endpoints that were named for its request.

The picker does not see connections, only what Envoy shows of a response: its status, and in metadata the
endpoint that served it. Two things follow from that.

An endpoint failed when it answered with a server error. Envoy answers likewise, with 503 or 504, in the
place of an endpoint that refused the connection, reset it or took too long, and names that endpoint as the
one that served. Not failures: any status below 500, 429 included; 501 and 505, which speak of the request;
and an answer that Envoy gives because its own limits are reached. A failed gRPC call has HTTP status 200 and
says ``grpc-status`` in its head; Envoy speaks gRPC to gRPC clients likewise, in the endpoint's place.

An endpoint failed, too, when Envoy went past it: it walks the named endpoints in order, so those before the
one that served were tried in vain, and all of them when it served from elsewhere.

A stream that ends before response headers is a client that left, since a broken upstream would have had an
answer of Envoy's; after response headers the two look alike, so a response that breaks off says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dataplane.headers import ENVOY_OVERLOADED, GRPC_STATUS, Headers
from epp.interfaces.endpoint import Endpoint

ABOUT_THE_REQUEST: Final = frozenset({501, 505})
"""Server errors that say nothing about the server's health."""

GRPC_FAILURES: Final = frozenset({b"2", b"13", b"14", b"15"})
"""UNKNOWN, INTERNAL, UNAVAILABLE and DATA_LOSS; every other code speaks of the request or of load."""


class Verdict(NamedTuple):
    """Who is known to have failed or answered."""

    passed_over: Sequence[Endpoint]
    """Tried in vain before another one served."""
    last: Endpoint | None
    """Who answered, or was answered for; None when that is no endpoint of the pool."""
    failed: bool | None
    """Whether ``last`` failed; None when the response does not tell."""


def is_failure(status: int, headers: Headers) -> bool:
    """Whether a response with this head counts against the endpoint."""
    if status >= 500:
        return status not in ABOUT_THE_REQUEST
    return GRPC_STATUS in headers and headers.raw(GRPC_STATUS) in GRPC_FAILURES


def judge(
    named: Sequence[Endpoint], served: Endpoint | None, status: int, headers: Headers, *, told: bool
) -> Verdict:
    """The verdict on a response.

    ``told``: Envoy named who served; ``served`` is that endpoint, None when the pool does not have it.
    """
    last = served if told else named[0]
    passed_over: Sequence[Endpoint] = ()
    if told and served is not named[0]:
        passed_over = named[: named.index(served)] if served in named else named
    if not status or ENVOY_OVERLOADED in headers:
        return Verdict(passed_over, last, None)
    return Verdict(passed_over, last, is_failure(status, headers))
