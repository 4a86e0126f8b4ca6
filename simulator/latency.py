"""How long an engine takes: two kinds of model.

`StepLatency` times whole steps of a batch, so that prefill and decode disturb each other as they do on a GPU.
`SequenceLatency` gives each sequence its own pace, by the formulas that the field's simulators use:
`constant` (a time to first token) and `per-token` (an overhead plus a time per uncached prompt token).
"""

import random
from dataclasses import dataclass

JITTER_CLAMP = 0.7
"""A jittered time stays within this fraction of its mean."""


@dataclass(frozen=True, slots=True)
class StepLatency:
    """`base + prefill_token*P + decode_sequence*D + context_token*C`, all in seconds.

    P: prompt tokens computed in the step; D: sequences that decode; C: tokens already in the KV cache of all
    sequences in the step.
    """

    base: float
    prefill_token: float
    decode_sequence: float
    context_token: float

    def step(self, prefill_tokens: int, decode_sequences: int, context_tokens: int) -> float:
        """Return the duration of one step in seconds."""
        return (
            self.base
            + self.prefill_token * prefill_tokens
            + self.decode_sequence * decode_sequences
            + self.context_token * context_tokens
        )


@dataclass(frozen=True, slots=True)
class Jittered:
    """A time in seconds with the standard deviation of its noise."""

    mean: float
    std_dev: float = 0.0

    def draw(self, source: random.Random) -> float:
        """Return one time: normal around the mean, clamped."""
        if not self.std_dev:
            return self.mean
        low, high = self.mean * (1 - JITTER_CLAMP), self.mean * (1 + JITTER_CLAMP)
        return min(high, max(low, source.gauss(self.mean, self.std_dev)))


NO_TIME = Jittered(0.0)


class SequenceLatency:
    """Each sequence by itself; only the load factor knows of the others.

    With `time_to_first_token` given, prefill takes that; otherwise `prefill_overhead` plus
    `prefill_per_token` for each prompt token that is not cached, with `prefill_std_dev`.
    """

    def __init__(
        self,
        source: random.Random,
        *,
        max_num_seqs: int,
        load_factor: float = 1.0,
        time_to_first_token: Jittered | None = None,
        prefill_overhead: float = 0.0,
        prefill_per_token: float = 0.0,
        prefill_std_dev: float = 0.0,
        inter_token: Jittered = NO_TIME,
        time_scale: float = 1.0,
    ) -> None:
        self._source = source
        self._load = (load_factor - 1.0) / (max_num_seqs - 1) if max_num_seqs > 1 else 0.0
        self._first = time_to_first_token
        self._overhead = prefill_overhead
        self._per_token = prefill_per_token
        self._prefill_std_dev = prefill_std_dev
        self._inter_token = inter_token
        self._scale = time_scale

    def prefill(self, uncached_tokens: int, running: int) -> float:
        """Return the seconds from scheduling to the first token, with `running` sequences (this one too)."""
        first = self._first
        if first is None:
            mean = self._overhead + self._per_token * uncached_tokens
            first = Jittered(mean, self._prefill_std_dev)
        return first.draw(self._source) * self._factor(running)

    def decode(self, running: int) -> float:
        """Return the seconds to the next token."""
        return self._inter_token.draw(self._source) * self._factor(running)

    def _factor(self, running: int) -> float:
        return self._scale * (1.0 + self._load * (running - 1))


Latency = StepLatency | SequenceLatency
