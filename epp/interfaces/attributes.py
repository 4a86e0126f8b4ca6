"""The values plugins exchange about requests and endpoints: their keys, shapes and units.

Values about a request live on the request; endpoint attributes are what the data layer leaves on endpoints,
whichever requests come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import Candidates, Endpoint, Floats


class TokenizedPrompt(msgspec.Struct):
    """A prompt as tokens. ``data`` holds them as little-endian uint32, so a block is a slice of bytes.

    The estimate backend packs four bytes of text into one pseudo-token, which makes ``data`` the text
    itself, zero-padded to a multiple of four.
    """

    data: bytes
    tokens: int
    batch: list[bytes] | None = None
    """A batched prompt: one ``data`` each; ``tokens`` is then the sum."""


class PrefixMatch(msgspec.Struct):
    """How much of the prompt each candidate already holds, in blocks from the start."""

    candidates: Candidates
    matched: Floats
    """Contiguous blocks held, parallel to ``candidates``."""
    total: int
    """Blocks of the prompt (a partial last block counts as one); 0 = nothing to match."""
    block_size: int
    """Tokens in a block."""

    def held_blocks(self, endpoint: Endpoint) -> float:
        """Blocks of the prompt that an endpoint holds; 0 for one that was no candidate."""
        held = self.matched[self.candidates.slots == endpoint.slot]
        return float(held[0]) if held.size else 0.0

    def held_tokens(self, endpoint: Endpoint) -> int:
        """Tokens of the prompt that an endpoint holds; 0 for one that was no candidate."""
        return int(self.held_blocks(endpoint)) * self.block_size


class InflightLoad(msgspec.Struct):
    """Load already sent to each candidate, parallel to ``candidates``."""

    candidates: Candidates
    requests: Floats
    tokens: Floats


class EncoderMatch(msgspec.Struct):
    """How much of the prompt's images, clips and videos each candidate has encoded before, in tokens."""

    candidates: Candidates
    matched: Floats
    """Parallel to ``candidates``."""
    total: float
    """Of all distinct media of the prompt; more than 0."""


class LatencyPrediction(msgspec.Struct):
    """What is predicted for the request at each candidate, parallel to ``candidates``."""

    candidates: Candidates
    ttft_ms: Floats
    """Time to the first token; NaN = no prediction."""
    tpot_ms: Floats
    """Time per output token after the first."""
    ttft_headroom_ms: Floats
    """What the objective allows beyond the prediction; negative = missed."""
    tpot_headroom_ms: Floats
    valid: NDArray[np.bool_]
    """Whether the prediction meets the request's objectives; False where there is none."""


TOKENIZED_PROMPT: Final[DataKey[TokenizedPrompt]] = DataKey("TokenizedPrompt", value=TokenizedPrompt)
PREFIX_MATCH: Final[DataKey[PrefixMatch]] = DataKey("PrefixCacheMatchInfo", value=PrefixMatch)
INFLIGHT_LOAD: Final[DataKey[InflightLoad]] = DataKey("InFlightLoad", value=InflightLoad)

ENCODER_MATCH: Final[DataKey[EncoderMatch]] = DataKey("EncoderCacheMatchInfo", value=EncoderMatch)

LATENCY_PREDICTION: Final[DataKey[LatencyPrediction]] = DataKey(
    "LatencyPredictionInfo", value=LatencyPrediction
)

SESSION_ID: Final[DataKey[str]] = DataKey("SessionID", value=str)
"""Names the session a request belongs to; of bounded length."""
AGENT_IDENTITY: Final[DataKey[str]] = DataKey("agent-identity", value=str)
"""Names the agent session a request belongs to; of bounded length, and the same key whoever leaves it."""

PEER_ENDPOINT: Final[DataKey[Endpoint]] = DataKey("peer-endpoint", value=Endpoint)
"""Where an earlier stage of the request runs, for plugins that want a later one close to it."""

ENGINE_METRICS: Final[DataKey[Any]] = DataKey("EngineMetrics")
"""Declared by readers of the table's measured columns; provided by any data source with an extractor."""


class Topology(msgspec.Struct, frozen=True):
    """Where an endpoint runs, from near to far; empty = not known."""

    host: str = ""
    rack: str = ""
    zone: str = ""
    region: str = ""


class ServedModel(msgspec.Struct, frozen=True):
    """One entry of a model server's list of models."""

    id: str
    object: str = ""
    created: int = 0
    owned_by: str = ""
    parent: str = ""
    """Base model of a LoRA adapter; empty for others."""


TOPOLOGY: Final[DataKey[Topology]] = DataKey("Topology", value=Topology)
SERVED_MODELS: Final[DataKey[tuple[ServedModel, ...]]] = DataKey("/v1/models", value=tuple)
GPU_UTILIZATION: Final[DataKey[float]] = DataKey("GPUUtilization", value=float)
"""Share of time in which the busiest GPU of the endpoint had work, 0 to 1."""
POOL_QUEUE_SIZE: Final[DataKey[float]] = DataKey("PoolAverageQueueSize", value=float)
"""Waiting requests per endpoint of the pool that an endpoint stands for."""
POOL_KV_CACHE_UTILIZATION: Final[DataKey[float]] = DataKey("PoolAverageKVCacheUtilization", value=float)
"""Mean KV-cache utilization of the endpoints of that pool, 0 to 1."""

DEFAULT_PRODUCERS: Final[Mapping[str, str]] = {
    TOKENIZED_PROMPT.type_name: "token-producer",
    PREFIX_MATCH.type_name: "approx-prefix-cache-producer",
    INFLIGHT_LOAD.type_name: "inflight-load-producer",
    SESSION_ID.type_name: "session-id-producer",
    ENCODER_MATCH.type_name: "mm-embeddings-cache-producer",
    LATENCY_PREDICTION.type_name: "predicted-latency-producer",
    TOPOLOGY.type_name: "topology-extractor",
}
"""Plugin type that produces each kind of value when no other producer is named; created if missing."""

T = TypeVar("T")


def produced_by(key: DataKey[T], name: str) -> DataKey[T]:
    """The key under which the producer instance ``name`` publishes; ``""`` means the default producer.

    The default producer is the instance that is named like the default producer type.
    """
    return key if name in ("", DEFAULT_PRODUCERS[key.type_name]) else key.by(name)


def aligned(values: Floats, of: Candidates, to: Candidates) -> Floats:
    """``values``, parallel to ``of``, made parallel to ``to``: the same set, or what filters left of it."""
    if of is to:
        return values
    by_slot = np.zeros(to.table.capacity)
    by_slot[of.slots] = values
    narrowed: Floats = by_slot[to.slots]
    return narrowed
