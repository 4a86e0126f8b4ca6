"""Keep a session on one endpoint: what the filter and the scorer of that name have in common.

Two strategies. ``encoded_endpoint_header`` keeps nothing here: the response carries a token that names the
endpoint, and a client that sends it back is led there again. ``session_id`` keeps a map from the ids clients
send to endpoints; a session ends when it was idle for ``evictionTtlSeconds``, and the one idle longest makes
room when ``MAX_SESSIONS`` are known.

Both name an endpoint by its identity in discovery, so a session survives a server that comes back under its
name. An endpoint that is not there (any more) counts for nothing: the request goes where others send it, and
the session with it. An answer of 502, 503 or 504 pins nothing, and in a map it ends the session.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from dataplane.clock import Clock
from dataplane.errors import ConfigError
from dataplane.headers import SESSION_ID as SESSION_ID_HEADER
from dataplane.headers import SESSION_TOKEN
from dataplane.plugin.base import DataKey, PluginParams, TypedName
from dataplane.plugin.state import listing
from epp.interfaces.attributes import DEFAULT_PRODUCERS
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseHead
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.session_ids import bounded, from_header

MAX_SESSIONS: Final = 100_000
"""Sessions one instance knows; beyond, the one idle longest is forgotten."""
MAX_SWEPT: Final = 4096
"""Sessions ended in one sweep; what is left is for the next request."""
MAX_TOKEN_CHARS: Final = 1024
"""Longer tokens are none of ours."""

UNAVAILABLE: Final = frozenset({502, 503, 504})
"""Statuses that say of the endpoint, or of the way there, that it cannot serve."""

HeaderName = Annotated[str, msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]


class EncodedEndpointHeaderConfig(PluginParams, frozen=True):
    """Settings of the strategy encoded_endpoint_header."""

    header: HeaderName = SESSION_TOKEN
    """Header of requests and responses that carries the token."""


class SessionSource(PluginParams, frozen=True):
    """One place where a session id may be."""

    header: str = ""
    """A request header."""
    attribute: str = ""
    """Text another plugin leaves: SessionID, agent-identity."""
    producer: str = ""
    """Name of the plugin that leaves it; empty = its default producer."""

    def key(self) -> DataKey[Any]:
        """The key of the attribute."""
        key: DataKey[Any] = DataKey(self.attribute, value=str)
        return key if self.producer in ("", DEFAULT_PRODUCERS.get(self.attribute)) else key.by(self.producer)


class SessionIdConfig(PluginParams, frozen=True):
    """Settings of the strategy session_id."""

    sources: list[SessionSource] = msgspec.field(
        default_factory=lambda: [SessionSource(header=SESSION_ID_HEADER)]
    )
    """Where the session id may be; the first that is there counts."""
    eviction_ttl_seconds: Seconds = 300
    """Idle time after which a session ends; 0 = never by time."""
    eviction_sweep_seconds: Annotated[float, msgspec.Meta(gt=0, le=31_536_000)] = 10
    """How often ended sessions are swept out of memory."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigError("names no source; leave it out to read x-session-id", path="sources")
        for i, source in enumerate(self.sources):
            if bool(source.header) == bool(source.attribute):
                raise ConfigError("give either a header or an attribute", path=f"sources[{i}]")
            if source.producer and not source.attribute:
                raise ConfigError("belongs to an attribute; remove it", path=f"sources[{i}].producer")


class SessionAffinityParams(PluginParams, frozen=True):
    """Parameters of session-affinity-filter and session-affinity-scorer."""

    strategy: Literal["encoded_endpoint_header", "session_id"] = "encoded_endpoint_header"
    """Who keeps the session's endpoint: the client in a token, or the picker in a map."""
    encoded_endpoint_header_config: EncodedEndpointHeaderConfig | None = None
    """Settings of the strategy encoded_endpoint_header: `header`."""
    session_id_config: SessionIdConfig | None = None
    """Settings of the strategy session_id: `sources`, `evictionTtlSeconds`, `evictionSweepSeconds`."""
    profile_name: str = ""
    """Profile whose endpoint the session is kept on; empty = the one that names the destination."""


class SessionMap:
    """Sessions and their endpoints' ids, idle longest first. Never more than ``MAX_SESSIONS``."""

    def __init__(self, ttl_s: float, sweep_s: float, clock: Clock) -> None:
        self._ttl_s = ttl_s or float("inf")
        self._sweep_s = sweep_s
        self._clock = clock
        self._sweep_at = clock() + sweep_s
        self._pins: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def take_over(self, other: SessionMap) -> None:
        """Share the sessions of another map; both see what becomes of them."""
        self._pins = other._pins

    def get(self, session: str) -> str | None:
        """The endpoint id of a session that has not ended."""
        pin = self._pins.get(session)
        if pin is None or self._clock() - pin[1] >= self._ttl_s:
            return None
        return pin[0]

    def put(self, session: str, endpoint_id: str) -> None:
        """The session is in use, on this endpoint."""
        now = self._clock()
        self._pins[session] = (endpoint_id, now)
        self._pins.move_to_end(session)
        if len(self._pins) > MAX_SESSIONS:
            self._pins.popitem(last=False)
        if now >= self._sweep_at:
            self._sweep(now)

    def end(self, session: str, endpoint_id: str) -> None:
        """Forget the session if it is on this endpoint."""
        pin = self._pins.get(session)
        if pin is not None and pin[0] == endpoint_id:
            del self._pins[session]

    def latest(self) -> Iterator[tuple[str, str, float]]:
        """Session, endpoint id and idle seconds, used last first; sessions that have ended are not swept."""
        now = self._clock()
        for session, (endpoint_id, used_at) in reversed(self._pins.items()):
            yield session, endpoint_id, now - used_at

    def _sweep(self, now: float) -> None:
        for _ in range(MAX_SWEPT):
            session = next(iter(self._pins), None)
            if session is None or now - self._pins[session][1] < self._ttl_s:
                self._sweep_at = now + self._sweep_s
                return
            del self._pins[session]


class SessionAffinity:
    """Finds the endpoint of a request's session and keeps up where sessions are."""

    def __init__(self, name: TypedName, params: SessionAffinityParams, handle: Handle) -> None:
        self.name = name
        self._table = handle.table
        self._profile = params.profile_name
        self._token_header = (params.encoded_endpoint_header_config or _TOKEN_DEFAULTS).header.lower()
        self._sessions: SessionMap | None = None
        self._sources: list[tuple[str, DataKey[Any] | None]] = []
        if params.strategy == "session_id":
            config = params.session_id_config or SessionIdConfig()
            self._sessions = SessionMap(
                config.eviction_ttl_seconds, config.eviction_sweep_seconds, handle.clock
            )
            self._sources = [(s.header.lower(), s.key() if s.attribute else None) for s in config.sources]
        self.consumes: Sequence[DataKey[Any]] = [key for _, key in self._sources if key is not None]
        self.warnings = _unused(params)

    def inherit(self, predecessor: SessionAffinity) -> None:
        """Keep the sessions of the plugin before on their endpoints."""
        if self._sessions is not None and predecessor._sessions is not None:
            self._sessions.take_over(predecessor._sessions)

    def pinned(self, request: InferenceRequest) -> Endpoint | None:
        """The endpoint the request's session is on, if it is there."""
        if self._sessions is None:
            endpoint_id = decode_token(request.headers.get(self._token_header))
        else:
            session = self._session(request)
            endpoint_id = self._sessions.get(session) if session else None
        return self._table.get(endpoint_id) if endpoint_id else None

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Note where the session is now: the next request may come before this one's response."""
        if self._sessions is not None:
            session, endpoint = self._session(request), self._chosen(result)
            if session and endpoint is not None:
                self._sessions.put(session, endpoint.spec.id)

    def process_response_headers(
        self, request: InferenceRequest, response: ResponseHead, set_headers: dict[str, str]
    ) -> None:
        """Tell the client its token, or correct the map by who really served."""
        chosen = self._chosen(response.result)
        if chosen is None:
            return
        endpoint, is_available = self._served(response) or chosen, response.status not in UNAVAILABLE
        if self._sessions is None:
            if is_available:
                set_headers[self._token_header] = encode_token(endpoint.spec.id)
        elif session := self._session(request):
            if not is_available:
                self._sessions.end(session, chosen.spec.id)
            elif endpoint is not chosen:
                self._sessions.put(session, endpoint.spec.id)

    def dump_state(self) -> dict[str, Any]:
        """Where sessions are, used last first. Ids are hashed: knowing one may be all it takes to join it."""
        if self._sessions is None:
            return {"strategy": "encoded_endpoint_header", "header": self._token_header}
        latest = (
            {
                "sessionSha256": hashlib.sha256(session.encode("utf-8", "surrogateescape")).hexdigest()[:16],
                "endpoint": endpoint_id,
                "idleSeconds": round(idle_s, 3),
            }
            for session, endpoint_id, idle_s in self._sessions.latest()
        )
        return {"strategy": "session_id", **listing("sessions", latest, len(self._sessions))}

    def _session(self, request: InferenceRequest) -> str:
        """The session id of the first source that has one."""
        for header, key in self._sources:
            if key is None:
                session = from_header(request.headers, header)
            else:
                value = request.get(key)
                session = bounded(value) if isinstance(value, str) else ""
            if session:
                return session
        return ""

    def _served(self, response: ResponseHead) -> Endpoint | None:
        """Who served the request, if this instance follows the destination and it is known."""
        if not response.served or self._profile not in ("", response.result.primary):
            return None
        return self._table.at(response.served)

    def _chosen(self, result: SchedulingResult) -> Endpoint | None:
        """The endpoint of the profile this instance follows; None when that profile did not run."""
        found = result.results.get(self._profile or result.primary)
        return found.endpoints[0] if found is not None and found.endpoints else None


def encode_token(endpoint_id: str) -> str:
    """The token of an endpoint: base64 of ``namespace/name``."""
    return b64encode(endpoint_id.encode("utf-8", "surrogateescape")).decode()


def decode_token(token: str) -> str | None:
    """The endpoint id in a token; None for what is no token."""
    if not token or len(token) > MAX_TOKEN_CHARS:
        return None
    try:
        return b64decode(token.strip(), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return None


_TOKEN_DEFAULTS: Final = EncodedEndpointHeaderConfig()


def _unused(params: SessionAffinityParams) -> list[str]:
    """Settings of the strategy that is not in use."""
    of_id = params.strategy == "session_id"
    field = "encodedEndpointHeaderConfig" if of_id else "sessionIdConfig"
    given = params.encoded_endpoint_header_config if of_id else params.session_id_config
    return [f"{field} has no effect with strategy {params.strategy}"] if given is not None else []
