"""From a tokenised prompt to the keys of its prefixes.

A prompt is cut into pieces of whole blocks. A piece's key is the xxh3-64 hash of its bytes with the key
before it as seed, so a key names the whole prefix up to and including its piece: equal keys mean equal
prefixes. The chain starts from the model's name and the cache salt; a LoRA adapter is a model name of its
own, so its prefixes never match another's.

Pieces grow with depth, since time and memory go by the key: hashing it, and above all the cold cache lines of
looking it up, recording and evicting it. A prompt of 156 blocks (10 000 tokens in blocks of 64) has 36 keys.
Where a piece ends depends on its position alone, so prompts that share a prefix share its keys. The price is
resolution: how far two prompts agree is rounded down to the end of a piece.

Only full pieces have keys: an engine stores and reuses nothing smaller than a block.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import xxhash

BYTES_PER_TOKEN: Final = 4
"""Tokens are little-endian uint32 in ``TokenizedPrompt.data``."""

STEPS: Final = ((1, 16), (4, 80))
"""Blocks per key, and the depth in blocks up to which that holds. With blocks of 64 tokens: the first 1024
tokens block by block, so that short prompts lose nothing, then 256 tokens at a time up to 5120. Beyond the
single blocks a piece is at most a quarter of the depth at which it begins.

Measured: steps of 1, 2, 4, 8 and 16 cost a tenth more for 8000 tokens; a last step of 64 would save a fifth
for 100 000 tokens, but hide up to 4096 cached tokens from whoever estimates load by them.
"""

DEEP_STEP: Final = 16
"""Blocks per key beyond the last of ``STEPS``."""

_DEPTHS: Final = [0]
"""Blocks that the first n keys span, as far as ``STEPS`` reach."""
for _step, _until in STEPS:
    _DEPTHS.extend(range(_DEPTHS[-1] + _step, _until + 1, _step))

_LAST: Final = len(_DEPTHS) - 1
_DEPTH: Final = _DEPTHS[-1]

_COUNTS: Final = [sum(depth <= blocks for depth in _DEPTHS) - 1 for blocks in range(_DEPTH + 1)]
"""The inverse: keys that the first n blocks have."""

_SINGLES: Final = STEPS[0][1]
"""Keys of a single block each. Up to there copying a piece is faster than taking a view of it."""

_hash: Final = xxhash.xxh3_64_intdigest


MAX_KEPT_NAME: Final = 256
"""Characters of model and salt together up to which their seed is kept: both are the client's to choose."""


def chain_seed(model: str, cache_salt: str = "") -> int:
    """Where the chain of a model's prompts starts; prompts with different salts share no key."""
    if len(model) + len(cache_salt) > MAX_KEPT_NAME:
        return _seed(model, cache_salt)
    return _kept_seed(model, cache_salt)


def _seed(model: str, cache_salt: str) -> int:
    digest: int = _hash(f"{model}\0{cache_salt}".encode("utf-8", "surrogatepass"))
    return digest


_kept_seed: Final = lru_cache(maxsize=1024)(_seed)


def blocks_at(keys: int) -> int:
    """Blocks that the first ``keys`` keys of a prompt span."""
    return _DEPTHS[keys] if keys <= _LAST else _DEPTH + (keys - _LAST) * DEEP_STEP


def keys_within(blocks: int) -> int:
    """Keys that the first ``blocks`` blocks of a prompt have: the most that span no more."""
    return _COUNTS[blocks] if blocks <= _DEPTH else _LAST + (blocks - _DEPTH) // DEEP_STEP


def block_keys(data: bytes, block_tokens: int, seed: int, max_blocks: int) -> list[int]:
    """Keys of a prompt's full pieces, of its first ``max_blocks`` blocks at most."""
    block_bytes = block_tokens * BYTES_PER_TOKEN
    count = keys_within(min(len(data) // block_bytes, max_blocks))
    cuts = _cuts(block_bytes)
    for n in range(len(cuts), count):
        cuts.append(slice(blocks_at(n) * block_bytes, blocks_at(n + 1) * block_bytes))
    source = data if count <= _SINGLES else memoryview(data)
    key = seed
    return [key := _hash(source[cut], key) for cut in cuts[:count]]


@lru_cache(maxsize=64)
def _cuts(block_bytes: int) -> list[slice]:
    """The pieces of every prompt, as far as the longest one so far (bodies are capped): made only once."""
    return []
