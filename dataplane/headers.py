"""Every header and metadata name of the data plane, in one table, and the headers of one message.

The names are llm-d's and the Endpoint Picker Protocol's, so that gateways, sidecars and dashboards
work unchanged. Nothing else in the project spells a header name as a literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

# Endpoint Picker Protocol: where the picker's choice travels.
DESTINATION_ENDPOINT: Final = "x-gateway-destination-endpoint"
DESTINATION_ENDPOINT_SUBSET: Final = "x-gateway-destination-endpoint-subset"
DESTINATION_ENDPOINT_SERVED: Final = "x-gateway-destination-endpoint-served"
DESTINATION_ENDPOINT_SCORES: Final = "x-gateway-destination-endpoint-scores"
LB_NAMESPACE: Final = "envoy.lb"
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"

# What a trusted caller (the agent router, a platform's own clients) may ask of the picker.
REQUEST_ID: Final = "x-request-id"
OBJECTIVE: Final = "x-llm-d-inference-objective"
FAIRNESS_ID: Final = "x-llm-d-inference-fairness-id"
MODEL_NAME_REWRITE: Final = "x-llm-d-model-name-rewrite"
SLO_TTFT_MS: Final = "x-llm-d-slo-ttft-ms"
SLO_TPOT_MS: Final = "x-llm-d-slo-tpot-ms"
ALIASES: Final[dict[str, str]] = {
    OBJECTIVE: "x-gateway-inference-objective",
    FAIRNESS_ID: "x-gateway-inference-fairness-id",
    MODEL_NAME_REWRITE: "x-gateway-model-name-rewrite",
    SLO_TTFT_MS: "x-slo-ttft-ms",
    SLO_TPOT_MS: "x-slo-tpot-ms",
}
"""Deprecated spelling of each caller header; the new name wins when both are present."""

# What a payload processor says of a request, by which routes find a pool.
MODEL_NAME: Final = "x-gateway-model-name"
BASE_MODEL_NAME: Final = "x-gateway-base-model-name"

VIDEO_FPS: Final = "x-llm-d-video-fps"
VIDEO_DURATION_S: Final = "x-llm-d-video-duration-seconds"
VIDEO_RESOLUTION: Final = "x-llm-d-video-resolution"
"""``WIDTHxHEIGHT`` in pixels."""
PREFER: Final = "prefer"
ACCEPT_ENCODING: Final = "accept-encoding"
CONTENT_ENCODING: Final = "content-encoding"
GRPC_STATUS: Final = "grpc-status"

ORIGINAL_PATH: Final = "x-original-path"
FORWARDED_PATH: Final = "x-forwarded-path"

# How a caller says that requests belong together.
SESSION_ID: Final = "x-session-id"
SESSION_TOKEN: Final = "x-session-token"  # noqa: S105 - the name of a header
AGENT_SESSIONS: Final = ("x-claude-code-session-id", "x-session-affinity", "session-id", "session_id")
"""Headers in which coding agents name their sessions, in order of preference."""
COOKIE: Final = "cookie"

# What the picker tells the P/D sidecar beside a model server.
PREFILLER: Final = "x-prefiller-host-port"
ENCODERS: Final = "x-encoder-hosts-ports"
DATA_PARALLEL: Final = "x-data-parallel-host-port"
KV_CACHE_SOURCE: Final = "x-kv-cache-source-host-port"

# What conformance tests ask of the picker.
TEST_SELECTION: Final = "test-epp-endpoint-selection"
TEST_SERVED: Final = "x-conformance-test-served-endpoint"

ENVOY_OVERLOADED: Final = "x-envoy-overloaded"
"""Set by Envoy on an answer of its own when one of its limits is reached."""

TRACEPARENT: Final = "traceparent"
"""Names the caller's span, in the words of W3C Trace Context."""

DROPPED_REASON: Final = "x-llm-d-request-dropped-reason"
EXPLAIN: Final = "x-pointsman-explain"
"""On a request: trace its decision. On the response: the decision in one line."""
WENT_INTO_RESPONSE_HEADERS: Final = "x-went-into-resp-headers"

SIDECAR_HEADERS: Final = frozenset({PREFILLER, ENCODERS, DATA_PARALLEL, KV_CACHE_SOURCE})
"""Routing orders to the sidecar: a client that could set them would choose the hosts it connects to."""

CONTROL_HEADERS: Final = frozenset(
    {
        DESTINATION_ENDPOINT,
        DESTINATION_ENDPOINT_SUBSET,
        DESTINATION_ENDPOINT_SERVED,
        DESTINATION_ENDPOINT_SCORES,
        DROPPED_REASON,
        VIDEO_FPS,
        VIDEO_DURATION_S,
        VIDEO_RESOLUTION,
        EXPLAIN,
        *ALIASES,
        *ALIASES.values(),
    }
)
"""Read by the picker or written by it; never of use to a model server."""

STRIPPED_UPSTREAM: Final = CONTROL_HEADERS | SIDECAR_HEADERS
"""Removed from the request before the model server, unless the picker itself sets them."""


BODY_DIGESTS: Final = frozenset({"content-digest", "repr-digest", "digest", "content-md5"})
"""Say what the bytes of a body are, so that they are wrong once one is rewritten."""


SECRET_HEADERS: Final = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
    }
)
"""Values that are neither kept beyond their request nor shown."""

NEVER_REPEATED: Final = frozenset({REQUEST_ID, TRACEPARENT})
"""Values that differ in every request, so that keeping them is of no use."""


class Headers:
    """The headers of one HTTP message: lower-case names, values as received, repeats kept in order.

    ``get`` answers the first value of a name, as Envoy does. Values are bytes on the wire; text is
    decoded as UTF-8 with surrogate escapes, so that any value survives a round trip.
    """

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Sequence[tuple[str, bytes]]) -> None:
        self.pairs = pairs
        first = dict(pairs)
        if len(first) != len(pairs):
            first = dict(reversed(pairs))
        self._first = first

    @classmethod
    def of(cls, items: Iterable[tuple[str, str | bytes]]) -> Headers:
        """Headers from text or byte values, names lower-cased."""
        return cls(
            [(k.lower(), v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v) for k, v in items]
        )

    def get(self, name: str, default: str = "") -> str:
        """First value of ``name`` (lower case) as text, ``default`` when absent."""
        value = self._first.get(name)
        return default if value is None else value.decode("utf-8", "surrogateescape")

    def raw(self, name: str) -> bytes | None:
        """First value of ``name`` as received."""
        return self._first.get(name)

    def control(self, name: str) -> str:
        """A caller header by its new name, else by its deprecated alias, else ``""``."""
        value = self._first.get(name)
        if value is None:
            value = self._first.get(ALIASES[name])
        return "" if value is None else value.decode("utf-8", "surrogateescape")

    def present(self, names: frozenset[str]) -> list[str]:
        """Which of ``names`` occur, in no particular order."""
        return [] if names.isdisjoint(self._first) else [n for n in self._first if n in names]

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({self.pairs!r})"
