"""``session-affinity``: keeps the requests of a session on the model that answered the first of them.

A scorer on the way in; on the way out it remembers which model served, and tells the client its session's id,
minted when it had none. Sessions of different tenants are different, whatever their ids.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self
from uuid import uuid4

import msgspec

from dataplane.headers import SESSION_ID
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.interfaces.models import ServedModel
from ipp.interfaces.selection import Selected
from ipp.model_metrics import ModelMetrics
from ipp.plugins.header_names import HeaderName, check_header_name

MAX_ID_LENGTH: Final = 256
"""Longer ids are replaced by one that is minted."""

_ID: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_ID_LENGTH}}}")


class SessionAffinityParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    session_id_key: HeaderName = SESSION_ID
    """Header of requests and responses."""
    max_sessions: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Sessions remembered; the one idle longest makes room."""
    ttl_seconds: Annotated[float, msgspec.Meta(gt=0, le=31_536_000)] = 3600.0
    """Time since its last request after which a session is forgotten."""

    def __post_init__(self) -> None:
        check_header_name(self.session_id_key, "sessionIdKey")


class _Kept(NamedTuple):
    """A session."""

    model: str
    until: float


class Sessions:
    """Which model each session is on. Bounded; the order is that of last use."""

    def __init__(self, most: int, ttl_s: float, metrics: ModelMetrics) -> None:
        self._most = most
        self._ttl_s = ttl_s
        self._metrics = metrics
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: bytes, now: float) -> str:
        """The session's model; empty when it is not known."""
        self._expire(now)
        found = self._kept.get(key)
        if found is None:
            self._metrics.session_misses.inc()
            return ""
        self._metrics.session_hits.inc()
        return found.model

    def put(self, key: bytes, model: str, now: float) -> None:
        """The session has been served by this model."""
        self._expire(now)
        if self._kept.pop(key, None) is None:
            self._metrics.sessions.inc()
        self._kept[key] = _Kept(model, now + self._ttl_s)
        while len(self._kept) > self._most:
            self._evict()

    def take(self, other: Sessions) -> None:
        """All that another one knows, as far as there is room."""
        for key, kept in list(other._kept.items())[-self._most :]:
            if key not in self._kept:
                self._metrics.sessions.inc()
            self._kept[key] = kept

    def clear(self) -> None:
        """Forget all."""
        self._metrics.sessions.inc(-len(self._kept))
        self._kept.clear()

    def _expire(self, now: float) -> None:
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._evict()

    def _evict(self) -> None:
        self._kept.popitem(last=False)
        self._metrics.sessions.inc(-1)
        self._metrics.session_evictions.inc()


class SessionAffinity:
    """Must be listed in a profile's request and response plugins."""

    info: ClassVar = PluginInfo("session-affinity", SessionAffinityParams)

    def __init__(self, name: TypedName, params: SessionAffinityParams, handle: Handle) -> None:
        self.name = name
        self._clock = handle.clock
        self._header = params.session_id_key.lower()
        self._sessions = Sessions(params.max_sessions, params.ttl_seconds, handle.metrics.of_models)

    def score_models(self, request: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """1 for the session's model, 0 for all others; 0 for all without a session that is known."""
        session = self._session(request)
        model = self._sessions.find(_key(request.tenant, session), self._clock()) if session else ""
        return [1.0 if model and candidate.name == model else 0.0 for candidate in candidates]

    def process_response(self, request: RequestMessage, response: ResponseMessage) -> None:
        """Tell the session's id; a model that failed does not keep it."""
        model: str | None = request.state.get(Selected)
        if model is None:
            return
        session = self._session(request) or str(uuid4())
        response.set_header(self._header, session)
        if 200 <= response.status < 500:
            self._sessions.put(_key(request.tenant, session), model, self._clock())

    async def start(self) -> None:
        """Nothing runs beside requests."""

    async def close(self) -> None:
        """Forget the sessions."""
        self._sessions.clear()

    def inherit(self, predecessor: Self) -> None:
        """Go on with the sessions, under the own bounds."""
        self._sessions.take(predecessor._sessions)

    def dump_state(self) -> dict[str, Any]:
        """For the debug page; ids are the clients' own."""
        return {"sessions": len(self._sessions)}

    def _session(self, request: RequestMessage) -> str:
        """The id the client sent, if it can be one."""
        sent = request.headers.get(self._header).strip()
        return sent if _ID.fullmatch(sent) else ""


def _key(tenant: str, session: str) -> bytes:
    text = f"{len(tenant)}:{tenant}{session}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
