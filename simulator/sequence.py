"""One sequence in an engine: a prompt, the answer that will be generated, and how far both are computed."""

from typing import Protocol

from simulator.text import Answer
from simulator.tokenizer import TOKEN_BYTES, chain_hashes


class Listener(Protocol):
    """Who wants to hear of a sequence. Called inside an engine step: must not call the engine."""

    def token(self, sequence: "Sequence") -> None:
        """One more token exists, and the answer goes on."""
        ...

    def finished(self, sequence: "Sequence") -> None:
        """The answer is complete and the sequence has left the engine."""
        ...


NEVER = -1.0
"""Time of what has not happened."""


class Sequence:
    """State of one sequence; the engine is the only writer once it is submitted."""

    __slots__ = (
        "adapter",
        "answer",
        "arrived_at",
        "blocks",
        "cached_tokens",
        "computed",
        "first_token_at",
        "generated",
        "hashes",
        "in_flight",
        "last_token_at",
        "length",
        "listener",
        "live",
        "max_tokens",
        "prompt",
        "prompt_length",
        "registered",
        "root",
        "scheduled_at",
        "ticket",
    )

    def __init__(
        self,
        prompt: bytes,
        answer: Answer,
        listener: Listener,
        *,
        root: int = 0,
        adapter: str = "",
        max_tokens: int | None = None,
    ) -> None:
        """Make a sequence; `root` is the hash before its first block, `max_tokens` what was asked for."""
        self.prompt = prompt
        self.prompt_length = len(prompt) // TOKEN_BYTES
        self.answer = answer
        self.listener = listener
        self.root = root
        self.adapter = adapter
        self.max_tokens = max_tokens
        self.generated = 0
        self.length = self.prompt_length
        """Prompt and generated tokens."""
        self.computed = 0
        """Leading tokens whose keys and values are in `blocks`."""
        self.blocks: list[int] = []
        self.hashes: list[int] = []
        """Chained hashes of the leading full blocks, as many as are known."""
        self.registered = 0
        """Leading blocks that are findable in the cache."""
        self.cached_tokens = 0
        """Prompt tokens found in the cache when the sequence was first scheduled."""
        self.live = False
        """Whether the engine has it, waiting or running."""
        self.in_flight = False
        self.ticket = 0
        self.arrived_at = 0.0
        self.scheduled_at = NEVER
        self.first_token_at = 0.0
        self.last_token_at = 0.0

    def hash_upto(self, blocks: int, block_size: int) -> None:
        """Extend `hashes` to the first `blocks` blocks, whose tokens must all exist."""
        known = len(self.hashes)
        if blocks <= known:
            return
        parent = self.hashes[-1] if self.hashes else self.root
        start, stop = known * block_size, blocks * block_size
        tokens = self.prompt[start * TOKEN_BYTES : stop * TOKEN_BYTES]
        if stop > self.prompt_length:
            tokens += self.answer.tokens(max(0, start - self.prompt_length), stop - self.prompt_length)
        self.hashes.extend(chain_hashes(tokens, block_size, parent))
