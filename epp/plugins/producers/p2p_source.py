"""Tell the sidecar which peer to pull cached blocks from, instead of computing them again.

Once it is decided where the prompt is computed, the endpoints that hold the most of it are looked at. One of
them is chosen with a chance of 1 / (1 + waiting requests), since a busy engine serves its peers slowly, and
by a hash of the request id, which spreads the pulls of a popular prefix. If it holds enough more than the
computing endpoint, a header names it; otherwise there is none, whatever the client sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np

from dataplane.headers import KV_CACHE_SOURCE
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch, produced_by
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import SchedulingResult

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


class P2pSourceParams(PluginParams, frozen=True):
    """Parameters of p2p-source-producer."""

    min_cached_token_delta: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Tokens the peer must hold beyond those of the computing endpoint."""
    prefill_profile_name: Annotated[str, msgspec.Meta(min_length=1)] = "prefill"
    """Profile whose endpoint computes the prompt; without a result of it the destination does."""
    prefix_match_info_producer_name: str = ""
    """Name of the producer of matches; empty = approx-prefix-cache-producer."""


class P2pSourceProducer:
    """Sets the header of the cache source before the request leaves."""

    info: ClassVar = PluginInfo("p2p-source-producer", P2pSourceParams, stability=Stability.ALPHA)

    def __init__(self, name: TypedName, params: P2pSourceParams, handle: Handle) -> None:
        self.name = name
        self._least = params.min_cached_token_delta
        self._profile = params.prefill_profile_name
        self._match = produced_by(PREFIX_MATCH, params.prefix_match_info_producer_name)
        self.consumes: Sequence[DataKey[Any]] = (self._match,)

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Name the peer if there is one that is worth while."""
        match = request.get(self._match)
        if match is None or not len(match.candidates):
            return
        prefill = result.results.get(self._profile)
        computing = prefill.endpoints[0] if prefill is not None else result.endpoints[0]
        held = match.held_blocks(computing)
        if (match.matched.max() - held) * match.block_size < self._least:
            return
        position = _choose(match, request.request_id)
        if (match.matched[position] - held) * match.block_size >= self._least:
            set_headers[KV_CACHE_SOURCE] = match.candidates.endpoint(position).key


def _choose(match: PrefixMatch, request_id: str) -> int:
    """Position of one of the endpoints within a block of the most held, by load and by the request's hash."""
    positions = np.flatnonzero(match.matched >= match.matched.max() - 1)
    weights = 1.0 / (1.0 + match.candidates.queue_depth()[positions])
    bounds = np.cumsum(weights)
    point = fnv32a(request_id.encode("utf-8", "surrogateescape")) / 2**32 * bounds[-1]
    chosen = np.searchsorted(bounds, point, side="right")
    return int(positions[min(int(chosen), len(positions) - 1)])


def fnv32a(data: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value
