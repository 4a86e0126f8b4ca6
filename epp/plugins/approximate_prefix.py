"""Know which endpoint probably holds the beginning of a prompt, from what was sent where.

For each request the prompt is cut into blocks and hashed; each candidate's longest run of blocks from the
start is published for scorers. When the destination is decided the prompt is recorded for it.

What the engine says afterwards corrects the record. A request that failed before its first byte was never
computed: what it added is taken back. A response that reports fewer cached tokens than believed shows that
the engine has evicted: everything touched no later than the missing blocks is forgotten with them, while the
prompt itself, just computed, stays. An endpoint that never reports a hit does not cache, and is emptied.

Block size and capacity follow the engines' own: a block here is as many whole blocks there as make up
``GRAIN_TOKENS``, and capacities are converted. Deep in a prompt several blocks share a key (``block_hash``);
matches, totals and capacities are in blocks all the same. What is lost is a little resolution, what is gained
is most of the hashing, the memory and the bookkeeping.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import DataKey, PluginParams, TypedName
from dataplane.plugin.state import MAX_DUMPED, listing
from epp.interfaces.attributes import (
    ENGINE_METRICS,
    PREFIX_MATCH,
    TOKENIZED_PROMPT,
    PrefixMatch,
    TokenizedPrompt,
    produced_by,
)
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest, ResponseSummary
from epp.interfaces.scheduling import SchedulingResult
from epp.kvcache.approximate_index import ApproximateIndex, Touch
from epp.kvcache.block_hash import BYTES_PER_TOKEN, block_keys, chain_seed

GRAIN_TOKENS: Final = 64
"""Tokens a self-tuned block spans at least; an engine's page of one token would cost a hash per token."""

MAX_BATCH_PROMPTS: Final = 64
"""Prompts of one batched request that are looked up and recorded; the rest only counts as unmatched."""

RETUNE_INTERVAL_S: Final = 1.0
"""How often the engines' block sizes are looked at."""

_TRUSTED_SHARE: Final = 0.75
_TRUSTED_SLACK_BLOCKS: Final = 2
"""Estimated and real tokens are not in the same proportion all along a prompt: a report is read as an
eviction only when it falls this clearly short of what was believed."""

_MISSES_BEFORE_EMPTYING: Final = 4
"""Believed hits in a row of which an endpoint reports none at all before it is taken not to cache."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class ApproximatePrefixParams(PluginParams, frozen=True):
    """Parameters of approx-prefix-cache-producer and its multi-cluster variant."""

    auto_tune: bool = True
    """Whether block size and capacity follow what the engines report."""
    block_size_tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16
    """Tokens per engine block when no engine reports its own; without autoTune, per block of the index."""
    block_size: Count = 0
    """Deprecated: block size in characters, four to a token."""
    max_prefix_tokens_to_match: Count = 131_072
    """Tokens of a prompt that are looked at; 0 = as many as maxPrefixBlocksToMatch says."""
    max_prefix_blocks_to_match: Count = 2048
    """Deprecated: the same in blocks, used when the limit in tokens is 0; 0 = no limit."""
    lru_capacity_per_server: Annotated[int, msgspec.Meta(ge=1)] = 31_250
    """Blocks remembered per endpoint whose engine does not report its own capacity, or without autoTune."""


class _Prompt(msgspec.Struct):
    """A prompt's keys, and where they were recorded."""

    chains: list[list[int]]
    tokens: int
    index: ApproximateIndex
    address: str = ""
    touches: list[Touch] = msgspec.field(default_factory=list)


class ApproximatePrefix:
    """Produces PrefixCacheMatchInfo from the picker's own decisions. Base of producers."""

    consumes: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT,)
    index: ApproximateIndex
    block_tokens: int
    _misses: dict[tuple[int, int], int]

    def __init__(self, name: TypedName, params: ApproximatePrefixParams, handle: Handle) -> None:
        self.name = name
        self.warnings = ["blockSize is deprecated; use blockSizeTokens"] if params.block_size else []
        if "maxPrefixBlocksToMatch" in handle.parameters:
            unused = " and has no effect while maxPrefixTokensToMatch is not 0"
            self.warnings.append(
                f"maxPrefixBlocksToMatch is deprecated{unused if params.max_prefix_tokens_to_match else ''}; "
                "use maxPrefixTokensToMatch"
            )
        self._params = params
        self._table = handle.table
        self._clock = handle.clock
        self._retune_at = 0.0
        self._table_version = -1
        self._use_blocks_of(_configured_block(params))
        self._key = produced_by(PREFIX_MATCH, name.name)
        self._prompt: DataKey[_Prompt] = DataKey("PrefixBlocks", name.name)
        self.produces: Sequence[DataKey[Any]] = (self._key,)
        self.may_consume: Sequence[DataKey[Any]] = (ENGINE_METRICS,) if params.auto_tune else ()

    def inherit(self, predecessor: ApproximatePrefix) -> None:
        """Go on with the index of the producer before, if the blocks are cut alike."""
        follows_engines = self._params.auto_tune and predecessor._params.auto_tune
        if follows_engines or predecessor.block_tokens == self.block_tokens:
            self._use_blocks_of(predecessor.block_tokens)
            self.index, self._misses = predecessor.index, predecessor._misses

    @property
    def indexed_blocks(self) -> int:
        """(endpoint, block) pairs remembered; deep in a prompt one key of the index stands for several."""
        return len(self.index)

    def dump_state(self) -> dict[str, Any]:
        """The index in figures: as a whole and by endpoint, those with most blocks first."""
        if self._table.version != self._table_version:
            self._forget_departed()
        rows = ((each, self._table.endpoints[each.slot]) for each in self.index.largest(MAX_DUMPED))
        endpoints = (
            {
                "endpoint": endpoint.spec.id,
                "blocks": each.blocks,
                "capacityBlocks": self._capacity(each.slot),
                "keys": each.keys,
                "unconfirmedPrompts": each.unconfirmed,
                "misses": self._misses.get((each.slot, each.generation), 0),
            }
            for each, endpoint in rows
            if endpoint is not None
        )
        distinct, pairs, most = self.index.keys
        return {
            "blockSizeTokens": self.block_tokens,
            "blocks": self.indexed_blocks,
            "distinctKeys": distinct,
            "keys": pairs,
            "maxKeys": most,
            **listing("endpoints", endpoints, len(self.index.slots())),
        }

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Publish how many blocks of the prompt each candidate holds."""
        prompt = request.get(TOKENIZED_PROMPT)
        if prompt is None:
            return
        now = self._clock()
        if now >= self._retune_at:
            self._retune_at = now + RETUNE_INTERVAL_S
            self._retune()
        if self._table.version != self._table_version:
            self._forget_departed()
        block, index = self.block_tokens, self.index
        seed = chain_seed(request.target_model, request.parsed.cache_salt)
        matched = np.zeros(self._table.capacity)
        chains: list[list[int]] = []
        for data in (prompt.data,) if prompt.batch is None else prompt.batch[:MAX_BATCH_PROMPTS]:
            keys = block_keys(data, block, seed, self._max_blocks)
            chains.append(keys)
            index.add_matches(keys, matched, _reusable(len(data), block))
        request.put(self._prompt, _Prompt(chains, prompt.tokens, index))
        total = _total_blocks(prompt, block, self._max_blocks)
        request.put(self._key, PrefixMatch(candidates, matched[candidates.slots], total, block))

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Record the prompt for the primary endpoint and for the one that computes it, if that is another."""
        prompt = request.get(self._prompt)
        if prompt is not None:
            self._record(prompt, result.endpoints[0])
            if result.prefill_endpoint is not None:
                prompt.touches += self._touch(prompt, result.prefill_endpoint)

    def on_first_byte(self, request: InferenceRequest) -> None:
        """The engine has computed the prompt: later requests may be judged by it."""
        prompt = request.get(self._prompt)
        if prompt is not None:
            for touch in prompt.touches:
                prompt.index.confirm(touch)

    def on_response_end(self, request: InferenceRequest, summary: ResponseSummary) -> None:
        """Correct the record by what became of the request."""
        prompt = request.get(self._prompt)
        if prompt is None:
            return
        touches, prompt.touches = prompt.touches, []
        index = prompt.index
        if _never_computed(summary):
            for touch in touches:
                index.retract(touch)
            return
        if summary.served and summary.served != prompt.address and index is self.index:
            for touch in touches:
                index.retract(touch)
            served = self._table.at(summary.served)
            if served is not None:
                self._record(prompt, served)
                touches, prompt.touches = prompt.touches, []
        for touch in touches:
            index.confirm(touch)
        if summary.usage is not None and len(touches) == 1 and index is self.index:
            self._compare(prompt, touches[0], summary.usage)

    def _record(self, prompt: _Prompt, endpoint: Endpoint) -> None:
        prompt.address = endpoint.key
        prompt.touches = self._touch(prompt, endpoint)

    def _touch(self, prompt: _Prompt, endpoint: Endpoint) -> list[Touch]:
        slot, generation, capacity = endpoint.slot, endpoint.generation, self._capacity(endpoint.slot)
        return [prompt.index.record(slot, generation, keys, capacity) for keys in prompt.chains if keys]

    def _compare(self, prompt: _Prompt, touch: Touch, usage: Usage) -> None:
        """Believed against reported cached tokens, as shares of the prompt: the tokens differ in size."""
        cached, tokens = usage.cached_tokens, usage.prompt_tokens
        if cached is None or not tokens or not touch.before:
            return
        endpoint = (touch.slot, touch.generation)
        if cached:
            self._misses.pop(endpoint, None)
        reported_blocks = cached / tokens * prompt.tokens / self.block_tokens
        if reported_blocks >= touch.believed * _TRUSTED_SHARE - _TRUSTED_SLACK_BLOCKS:
            return
        if not cached:
            self._misses[endpoint] = self._misses.get(endpoint, 0) + 1
            if self._misses[endpoint] >= _MISSES_BEFORE_EMPTYING:
                del self._misses[endpoint]
                self.index.remove(touch.slot)
                return
        self.index.forget_older(touch)

    def _capacity(self, slot: int) -> int:
        """Blocks the endpoint's engine can hold, in blocks of this index."""
        if self._params.auto_tune:
            tokens = int(self._table.num_blocks[slot]) * int(self._table.block_size[slot])
            if tokens:
                return max(1, tokens // self.block_tokens)
        return self._params.lru_capacity_per_server

    def _retune(self) -> None:
        """Follow the smallest block size any engine reports; keep the last one while none does."""
        sizes = self._table.block_size
        known = sizes[sizes > 0]
        if self._params.auto_tune and known.size:
            block = _grain(int(known.min()))
            if block != self.block_tokens:
                self._use_blocks_of(block)

    def _use_blocks_of(self, tokens: int) -> None:
        """Start an index over blocks of this size: keys of other blocks would never match."""
        self.index = ApproximateIndex()
        self.block_tokens = tokens
        self._misses = {}
        params = self._params
        if params.max_prefix_tokens_to_match:
            self._max_blocks = params.max_prefix_tokens_to_match // tokens
        else:
            self._max_blocks = params.max_prefix_blocks_to_match or sys.maxsize

    def _forget_departed(self) -> None:
        """Drop endpoints whose slot is free or has another tenant."""
        generations = self._table.generation
        for slot, generation in self.index.slots().items():
            if generations[slot] != generation:
                self.index.remove(slot)
        self._misses = {key: n for key, n in self._misses.items() if generations[key[0]] == key[1]}
        self._table_version = self._table.version


def _configured_block(params: ApproximatePrefixParams) -> int:
    """Block size in tokens before any engine has reported its own."""
    given = max(1, params.block_size // BYTES_PER_TOKEN) if params.block_size else params.block_size_tokens
    return _grain(given) if params.auto_tune else given


def _grain(engine_block: int) -> int:
    """The smallest multiple of an engine's block that spans ``GRAIN_TOKENS``."""
    return engine_block * -(-GRAIN_TOKENS // engine_block)


def _reusable(data_bytes: int, block_tokens: int) -> int:
    """Blocks an engine can take from its cache: full ones that leave a token to compute."""
    return max(0, data_bytes - 1) // (block_tokens * BYTES_PER_TOKEN)


def _total_blocks(prompt: TokenizedPrompt, block_tokens: int, limit: int) -> int:
    """Blocks looked at, a partial last one included."""
    block_bytes = block_tokens * BYTES_PER_TOKEN
    if prompt.batch is None:
        return min(-(-len(prompt.data) // block_bytes), limit)
    return sum(min(-(-len(data) // block_bytes), limit) for data in prompt.batch)


def _never_computed(summary: ResponseSummary) -> bool:
    """Whether the prompt cannot be in the cache: refused, or ended before the first byte of an answer."""
    return summary.status >= 400 or (summary.cause != "natural" and summary.ttft_s is None)
