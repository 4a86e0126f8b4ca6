"""Recognise the session of a coding agent by the headers such agents send.

The first header that is there names the session: those known of agents in the field are looked at first, then
those of ``additionalSessionHeaders``. It becomes the request's fairness id, unless the caller sends one, so
that all turns of a session share a queue, and it is left as ``agent-identity`` for whoever pins sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from dataplane.headers import AGENT_SESSIONS
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import AGENT_IDENTITY
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.plugins.session_ids import from_header


class AgentIdentityParams(PluginParams, frozen=True):
    """Parameters of agent-identity."""

    additional_session_headers: list[Annotated[str, msgspec.Meta(min_length=1)]] = msgspec.field(
        default_factory=list
    )
    """Request headers that are looked at after the known ones, in this order."""


class AgentIdentity:
    """Leaves agent-identity and sets the fairness id."""

    info: ClassVar = PluginInfo("agent-identity", AgentIdentityParams, stability=Stability.ALPHA)
    produces: Sequence[DataKey[Any]] = (AGENT_IDENTITY,)

    def __init__(self, name: TypedName, params: AgentIdentityParams, handle: Handle) -> None:
        self.name = name
        more = [header.lower() for header in params.additional_session_headers]
        self._headers = tuple(dict.fromkeys([*AGENT_SESSIONS, *more]))

    def process_request_headers(self, request: InferenceRequest) -> None:
        """Take the session from the first header that names one."""
        for header in self._headers:
            if header in request.headers:
                session = from_header(request.headers, header)
                if session:
                    request.put(AGENT_IDENTITY, session)
                    request.fairness_id = session
                    return
