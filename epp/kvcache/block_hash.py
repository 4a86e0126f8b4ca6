"""From a tokenised prompt to the keys of its blocks.

A block's key is the xxh3-64 hash of its bytes with the previous block's key as seed, so a key names the whole
prefix up to and including its block: equal keys mean equal prefixes. The chain starts from the model's name
and the cache salt; a LoRA adapter is a model name of its own, so its prefixes never match another's.

Only full blocks have keys: an engine stores and reuses nothing smaller.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import xxhash

BYTES_PER_TOKEN: Final = 4
"""Tokens are little-endian uint32 in ``TokenizedPrompt.data``."""

_hash: Final = xxhash.xxh3_64_intdigest


@lru_cache(maxsize=1024)
def chain_seed(model: str, cache_salt: str = "") -> int:
    """Where the chain of a model's prompts starts; prompts with different salts share no key."""
    digest: int = _hash(f"{model}\0{cache_salt}".encode("utf-8", "surrogatepass"))
    return digest


def block_keys(data: bytes, block_tokens: int, seed: int, max_blocks: int) -> list[int]:
    """Keys of the first full blocks of a prompt, at most ``max_blocks``."""
    block_bytes = block_tokens * BYTES_PER_TOKEN
    count = min(len(data) // block_bytes, max_blocks)
    if not count:
        return []
    key = seed
    blocks = np.frombuffer(data, _block_type(block_bytes), count).tolist()
    return [key := _hash(block, key) for block in blocks]


@lru_cache(maxsize=64)
def _block_type(block_bytes: int) -> np.dtype[Any]:
    """Opaque items of one block's size, so that numpy cuts a prompt in one call."""
    return np.dtype(f"V{block_bytes}")
