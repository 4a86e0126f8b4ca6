"""Keep the endpoints that a request's ``test-epp-endpoint-selection`` header names, for conformance tests.

The header is a comma list of ``ip:port`` or bare ``ip``, which means every port of that address. The named
endpoints are kept in the order of the header; what names no candidate is passed over, so a header that names
none leaves nobody. A request without the header is not narrowed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dataplane.headers import TEST_SELECTION
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest


class HeaderBasedTestingFilter:
    """Filters by the endpoints a header names."""

    info: ClassVar = PluginInfo("header-based-testing-filter")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """The named endpoints in the order named; all of them without the header."""
        if TEST_SELECTION not in request.headers:
            return candidates
        at: dict[str, list[int]] = {}
        for position, endpoint in enumerate(candidates.endpoints):
            at[endpoint.key] = [position]
            at.setdefault(endpoint.spec.address, []).append(position)
        positions: dict[int, None] = {}
        for token in request.headers.get(TEST_SELECTION).split(","):
            named = token.strip()
            found = at.get(named) or at.get(named.strip("[]")) or []
            positions.update(dict.fromkeys(found))
        order = np.array(list(positions), dtype=np.intp)
        rows = [candidates.endpoints[position] for position in positions]
        return Candidates(candidates.table, candidates.slots[order], rows)

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """That the header does not name it."""
        return f"not named in {TEST_SELECTION}"
