"""The values plugins exchange about a request: their keys, shapes and units."""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import Candidates, Floats


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


class InflightLoad(msgspec.Struct):
    """Load already sent to each candidate, parallel to ``candidates``."""

    candidates: Candidates
    requests: Floats
    tokens: Floats


TOKENIZED_PROMPT: Final[DataKey[TokenizedPrompt]] = DataKey("TokenizedPrompt")
PREFIX_MATCH: Final[DataKey[PrefixMatch]] = DataKey("PrefixCacheMatchInfo")
INFLIGHT_LOAD: Final[DataKey[InflightLoad]] = DataKey("InFlightLoad")
