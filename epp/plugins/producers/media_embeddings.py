"""Know which endpoint has probably encoded an image, a clip or a video before, from what was sent where.

Encoders keep the embeddings of what they have encoded. For each request the distinct media are looked up;
published is how much of them, by the tokens they stand for, each candidate holds. When the destination is
decided the media are recorded for whoever encodes them: the endpoints of the encode stage, else the one that
computes the prompt. A request that failed before its first byte takes back what it added.

Each endpoint remembers its latest media, as many as its cache holds at two MiB each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from epp.interfaces.attributes import ENCODER_MATCH, EncoderMatch, produced_by
from epp.interfaces.endpoint import Candidates, Endpoint, EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.numbers import Histogram
from epp.interfaces.request import InferenceRequest, MediaKind, Medium, ResponseSummary
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.media_tokens import EstimateParams

QUERIES: Final = "encoder_cache_queries_total"
HITS: Final = "encoder_cache_hits_total"
HIT_RATIO: Final = "encoder_cache_hit_ratio"
HIT_RATIO_BOUNDS: Final = tuple(n / 10 for n in range(11))

MIB_PER_ITEM: Final = 2
DEFAULT_MIB: Final = 4096

MAX_ITEMS: Final = 256
"""Distinct media of one request that are looked up and recorded."""

ENCODED: Final = (MediaKind.IMAGE, MediaKind.AUDIO, MediaKind.VIDEO)

_SIZES: Final = EstimateParams()


class MediaEmbeddingsParams(PluginParams, frozen=True):
    """Parameters of mm-embeddings-cache-producer."""

    cache_size_in_mb_per_server: int = msgspec.field(default=DEFAULT_MIB, name="cacheSizeInMBPerServer")
    """MiB of embeddings an endpoint keeps, of which each medium takes two; 0 or less = 4096."""


class _Items(msgspec.Struct):
    """The distinct media of a request with their sizes, and what was recorded for it."""

    sizes: dict[str, float]
    kinds: dict[str, MediaKind]
    added: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    """Slot, generation and digest."""


class EmbeddingsIndex:
    """Which slots hold which media; per slot the latest ones, used last at the end."""

    def __init__(self, table: EndpointTable) -> None:
        self._table = table
        self._version = table.version
        self.by_slot: dict[int, OrderedDict[str, int]] = {}
        """Slot -> digest -> generation of the slot."""
        self._holders: dict[str, set[int]] = {}

    def holders(self, digest: str) -> Iterable[int]:
        """Slots that hold a medium."""
        if self._version != self._table.version:
            self._forget_departed()
        return self._holders.get(digest, ())

    def record(self, endpoint: Endpoint, digest: str, capacity: int) -> bool:
        """The endpoint has it from now on; whether that is news."""
        slot = endpoint.slot
        held = self.by_slot.setdefault(slot, OrderedDict())
        is_new = digest not in held
        held[digest] = endpoint.generation
        held.move_to_end(digest)
        self._holders.setdefault(digest, set()).add(slot)
        while len(held) > capacity:
            self._drop(slot, next(iter(held)))
        return is_new

    def retract(self, slot: int, generation: int, digest: str) -> None:
        """The endpoint has not got it after all."""
        held = self.by_slot.get(slot)
        if held is not None and held.get(digest) == generation:
            self._drop(slot, digest)

    def _drop(self, slot: int, digest: str) -> None:
        held = self.by_slot[slot]
        del held[digest]
        if not held:
            del self.by_slot[slot]
        slots = self._holders[digest]
        slots.discard(slot)
        if not slots:
            del self._holders[digest]

    def _forget_departed(self) -> None:
        """Drop slots that are free or have another tenant."""
        self._version = self._table.version
        for slot, held in list(self.by_slot.items()):
            if self._table.generation[slot] != next(iter(held.values())):
                for digest in list(held):
                    self._drop(slot, digest)


class MediaEmbeddingsProducer:
    """Produces EncoderCacheMatchInfo from the picker's own decisions."""

    info: ClassVar = PluginInfo("mm-embeddings-cache-producer", MediaEmbeddingsParams)

    def __init__(self, name: TypedName, params: MediaEmbeddingsParams, handle: Handle) -> None:
        self.name = name
        given = params.cache_size_in_mb_per_server
        self._capacity = max(1, (given if given > 0 else DEFAULT_MIB) // MIB_PER_ITEM)
        self._table = handle.table
        self.index = EmbeddingsIndex(handle.table)
        self._key = produced_by(ENCODER_MATCH, name.name)
        self._items: DataKey[_Items] = DataKey("EncoderItems", name.name)
        self.produces: Sequence[DataKey[Any]] = (self._key,)
        self._queries: dict[MediaKind, int] = dict.fromkeys(ENCODED, 0)
        self._hits: dict[tuple[str, MediaKind], int] = {}
        self._ratios = {kind: Histogram(HIT_RATIO_BOUNDS) for kind in ENCODED}
        self.warnings = (
            [] if given > 0 else [f"cacheSizeInMBPerServer {given} is no size; {DEFAULT_MIB} is used"]
        )

    def inherit(self, predecessor: MediaEmbeddingsProducer) -> None:
        """Go on with the index and the numbers of the producer before."""
        self.index = predecessor.index
        self._queries, self._hits = predecessor._queries, predecessor._hits
        self._ratios = predecessor._ratios

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Publish how much of the prompt's media each candidate holds; nothing for a prompt of text."""
        if request.parsed.media is None:
            return
        items = _distinct(request.parsed.media, request)
        if items is None:
            return
        matched = np.zeros(self._table.capacity)
        for digest, size in items.sizes.items():
            for slot in self.index.holders(digest):
                matched[slot] += size
        request.put(self._items, items)
        total = sum(items.sizes.values())
        request.put(self._key, EncoderMatch(candidates, matched[candidates.slots], total))

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Record the media for whoever encodes them."""
        items = request.get(self._items)
        if items is None:
            return
        if result.encode:
            encoders = result.results[result.encode].endpoints
        else:
            encoders = [result.prefill_endpoint or result.endpoints[0]]
        self._count(items, encoders[0])
        for endpoint in encoders:
            for digest in items.sizes:
                if self.index.record(endpoint, digest, self._capacity):
                    items.added.append((endpoint.slot, endpoint.generation, digest))

    def _count(self, items: _Items, endpoint: Endpoint) -> None:
        sums: dict[MediaKind, tuple[float, float]] = {}
        for digest, size in items.sizes.items():
            kind = items.kinds[digest]
            held = endpoint.slot in self.index.holders(digest)
            self._queries[kind] += 1
            if held:
                labels = (endpoint.spec.name, kind)
                self._hits[labels] = self._hits.get(labels, 0) + 1
            found, total = sums.get(kind, (0.0, 0.0))
            sums[kind] = (found + size * held, total + size)
        for kind, (found, total) in sums.items():
            self._ratios[kind].observe(found / total)

    def on_response_end(self, request: InferenceRequest, summary: ResponseSummary) -> None:
        """Take back what a request that was never computed has added."""
        items = request.get(self._items)
        if items is None:
            return
        added, items.added = items.added, []
        if summary.status >= 400 or (summary.cause != "natural" and summary.ttft_s is None):
            for slot, generation, digest in added:
                self.index.retract(slot, generation, digest)

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        """It holds nothing yet."""

    def on_endpoint_removed(self, endpoint: Endpoint) -> None:
        """Its series end."""
        for kind in ENCODED:
            self._hits.pop((endpoint.spec.name, kind), None)

    def metric_series(self, metric: str) -> Iterable[tuple[Sequence[str], float | Histogram]]:
        """Lookups of media and how many the chosen endpoint held."""
        if metric == QUERIES:
            return [((kind,), count) for kind, count in self._queries.items()]
        if metric == HITS:
            return [((pod, kind), count) for (pod, kind), count in self._hits.items()]
        if metric == HIT_RATIO:
            return [((kind,), ratios) for kind, ratios in self._ratios.items()]
        return ()

    def dump_state(self) -> Mapping[str, Any]:
        """Media remembered per endpoint, most first."""
        counts = {slot: len(held) for slot, held in self.index.by_slot.items()}
        order = sorted(counts, key=lambda slot: -counts[slot])
        endpoints = self._table.endpoints
        shown = (
            {"endpoint": endpoint.spec.id, "items": counts[slot]}
            for slot in order
            if (endpoint := endpoints[slot]) is not None
        )
        return {"itemsPerEndpoint": self._capacity, **listing("endpoints", shown, len(counts))}


def _distinct(media: Sequence[Medium], request: InferenceRequest) -> _Items | None:
    """What there is to encode, each medium once; None when there is nothing."""
    items = _Items({}, {})
    for medium in media:
        if medium.kind in ENCODED and medium.digest not in items.sizes:
            items.sizes[medium.digest] = float(_SIZES.tokens(medium, request.headers))
            items.kinds[medium.digest] = medium.kind
            if len(items.sizes) == MAX_ITEMS:
                break
    return items if items.sizes else None
