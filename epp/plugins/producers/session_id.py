"""Publish the session a request belongs to, from a header or a cookie.

Without parameters the header ``x-session-id`` is read, so that the producer can be created for whoever needs
a session id. What a cookie says is published as a digest; ids of more than 256 bytes are, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dataplane.errors import ConfigError
from dataplane.headers import SESSION_ID as SESSION_ID_HEADER
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import SESSION_ID, produced_by
from epp.interfaces.endpoint import Candidates
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.session_ids import from_cookie, from_header


class SessionIdParams(PluginParams, frozen=True):
    """Parameters of session-id-producer."""

    header_name: str = ""
    """Request header that names the session; x-session-id when no cookie is named either."""
    cookie_name: str = ""
    """Cookie that names the session."""

    def __post_init__(self) -> None:
        if self.header_name and self.cookie_name:
            raise ConfigError("give either headerName or cookieName, not both", path="cookieName")


class SessionIdProducer:
    """Produces SessionID."""

    info: ClassVar = PluginInfo("session-id-producer", SessionIdParams)

    def __init__(self, name: TypedName, params: SessionIdParams, handle: Handle) -> None:
        self.name = name
        self._key = produced_by(SESSION_ID, name.name)
        self._cookie = params.cookie_name
        self._header = params.header_name.lower() or SESSION_ID_HEADER
        self.produces: Sequence[DataKey[Any]] = (self._key,)

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Publish the session id; nothing when the request names none."""
        if self._cookie:
            session = from_cookie(request.headers, self._cookie)
        else:
            session = from_header(request.headers, self._header)
        if session:
            request.put(self._key, session)
