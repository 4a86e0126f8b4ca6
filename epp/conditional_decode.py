"""Conditional decode: a caller wants the request served only where its KV cache already is.

``Prefer: if-available`` asks for it. A coordinator that has the stages of a request run one by one tries this
first: 412 tells it that nobody is known to hold any of the prompt, and that prefill has to come first.

Who holds what is for the prefix producers of the configuration to say, whatever they are called. Configured
ones count rather than ones that were only created because a plugin needed one; of several, one that knows of
a held block is enough. Where nothing is known of a prompt, nothing of it is available.
"""

from __future__ import annotations

import re
from typing import Final

from dataplane.errors import PreconditionFailedError
from dataplane.headers import PREFER, Headers
from dataplane.plugin.base import DataKey, TypedName
from epp.graph import PluginGraph
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import SchedulingResult

IF_AVAILABLE: Final = "if-available"
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"?')


def wants_only_cached(headers: Headers) -> bool:
    """Whether a ``Prefer`` header has the preference ``if-available``, in any case, parameters aside."""
    if PREFER not in headers:
        return False
    for name, value in headers:
        if name == PREFER:
            text = _QUOTED.sub("", value.decode("latin-1"))
            for preference in text.split(","):
                token, _, given = preference.partition(";")[0].partition("=")
                if token.strip().lower() == IF_AVAILABLE and not given.strip():
                    return True
    return False


class ConditionalDecode:
    """Judges decisions by the prefix producers of one plugin graph."""

    def __init__(self, graph: PluginGraph) -> None:
        configured = {spec.name or spec.type for spec in graph.config.plugins}
        keys: dict[bool, list[DataKey[PrefixMatch]]] = {True: [], False: []}
        for producer in graph.producers:
            name: TypedName = producer.name  # type: ignore[attr-defined]  # every plugin has one
            own = [key for key in producer.produces if key.type_name == PREFIX_MATCH.type_name]
            keys[name.name in configured] += own
        self._keys = keys[True] or keys[False]

    def match(self, request: InferenceRequest) -> PrefixMatch | None:
        """What the first of the producers that has something to say knows of the prompt."""
        for key in self._keys:
            match = request.get(key)
            if match is not None:
                return match
        return None

    def check(self, request: InferenceRequest, result: SchedulingResult) -> None:
        """``PreconditionFailedError`` when the destination is not known to hold any block of the prompt."""
        endpoint = result.endpoints[0]
        for key in self._keys:
            match = request.get(key)
            if match is not None and match.held_blocks(endpoint) > 0:
                return
        raise PreconditionFailedError("no decode worker has the requested KV cache")
