"""The scheduler of one replica: continuous batching with a token budget over a block-true KV cache.

Sans-I/O: `advance(now)` finishes what is due, schedules what follows and says when to call again; time is
whatever the caller passes. A step serves running sequences first, in order of admission, then admits waiting
ones, first come first served, while budget, seats and blocks last. A prompt longer than the budget is
computed in chunks. When a running sequence finds no block, the one admitted last is preempted: its blocks are
freed and it starts over at the head of the waiting queue, finding in the cache what has not been evicted.

Blocks become findable when their computation is scheduled, so two equal prompts admitted in one step share
them. At least one token of a sequence is always computed: a hit never covers the last token.

With a `StepLatency` all scheduled sequences finish together and nothing is scheduled meanwhile; with a
`SequenceLatency` each has its own due time and newcomers are admitted at any moment.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from simulator.kv_cache import KvCache
from simulator.latency import Latency, SequenceLatency, StepLatency
from simulator.sequence import NEVER, Sequence

MAX_LAG = 0.1
"""Seconds a late caller may be behind before the lost time is given up instead of caught up."""

TIMER_SLACK = 0.001
"""Seconds before its due time at which work counts as due: the resolution of event loop timers."""

UNLIMITED = 1 << 62

Work = tuple[Sequence, int, int]
"""A sequence, how many of its tokens are being computed, and its ticket at scheduling."""


class QueueFullError(Exception):
    """The waiting queue has no place for the submitted sequences."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one replica can hold; all counts are of tokens, sequences or blocks."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    max_waiting: int
    max_loras: int
    prefix_caching: bool = True


class Observer(Protocol):
    """What the engine tells its metrics; times are in seconds."""

    def scheduled(self, sequence: Sequence) -> None:
        """A sequence was admitted for the first time; `cached_tokens` is known."""
        ...

    def preempted(self) -> None:
        """A running sequence was sent back to the waiting queue."""
        ...

    def first_token(self, sequence: Sequence) -> None:
        """The prompt is computed and the first token exists."""
        ...

    def tokens(self, interval: float, count: int) -> None:
        """`count` sequences got a further token, `interval` after the one before."""
        ...

    def finished(self, sequence: Sequence, now: float, reason: str) -> None:
        """A sequence left the engine: `stop`, `length` or `abort`."""
        ...


class Engine:
    """Waiting and running sequences of one replica. Not thread-safe; one caller drives it."""

    def __init__(self, limits: Limits, latency: Latency, observer: Observer) -> None:
        self.limits = limits
        self.latency = latency
        self.cache = KvCache(limits.num_blocks, prefix_caching=limits.prefix_caching)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._observer = observer
        self._in_flight: list[tuple[float, int, list[Work]]] = []
        self._order = itertools.count()

    @property
    def idle(self) -> bool:
        """Whether nothing is being computed."""
        return not self._in_flight

    @property
    def admits_at_once(self) -> bool:
        """Whether a newcomer need not wait for the step in progress."""
        return isinstance(self.latency, SequenceLatency) or self.idle

    def submit(self, sequences: list[Sequence], now: float) -> None:
        """Queue all of `sequences` or, when they do not fit, none (QueueFullError)."""
        seats = self.limits.max_num_seqs - len(self.running)
        if len(self.waiting) + len(sequences) > self.limits.max_waiting + seats:
            raise QueueFullError
        for sequence in sequences:
            sequence.live = True
            sequence.arrived_at = now
            self.waiting.append(sequence)

    def abort(self, sequences: Iterable[Sequence], now: float) -> None:
        """Drop those of `sequences` that are still here and free their blocks at once."""
        for sequence in sequences:
            if not sequence.live:
                continue
            if sequence.scheduled_at != NEVER and sequence in self.running:
                self.running.remove(sequence)
            else:
                self.waiting.remove(sequence)
            self._leave(sequence, now, "abort")

    def advance(self, now: float) -> float | None:
        """Do everything due at `now`; return when the next thing is due, or None when there is no work."""
        start = now
        while self._in_flight and self._in_flight[0][0] <= now + TIMER_SLACK:
            due, _, work = heapq.heappop(self._in_flight)
            self._complete(work, due)
            start = due if now - due <= MAX_LAG else now
        if isinstance(self.latency, SequenceLatency):
            self._begin_each(self.latency, start)
        elif not self._in_flight:
            self._begin_step(self.latency, start)
        return self._in_flight[0][0] if self._in_flight else None

    def _begin_step(self, latency: StepLatency, start: float) -> None:
        plan = self._schedule(start, self.limits.max_num_batched_tokens)
        if not plan:
            return
        prefill = decodes = context = 0
        for sequence, count, _ in plan:
            context += sequence.computed
            if count == 1 and sequence.generated:
                decodes += 1
            else:
                prefill += count
        due = start + latency.step(prefill, decodes, context)
        heapq.heappush(self._in_flight, (due, next(self._order), plan))

    def _begin_each(self, latency: SequenceLatency, start: float) -> None:
        for work in self._schedule(start, UNLIMITED):
            sequence, count, _ = work
            running = len(self.running)
            decoding = count == 1 and sequence.generated
            duration = latency.decode(running) if decoding else latency.prefill(count, running)
            heapq.heappush(self._in_flight, (start + duration, next(self._order), [work]))

    def _schedule(self, now: float, budget: int) -> list[Work]:
        plan: list[Work] = []
        pressed = False
        position = 0
        running = self.running
        while position < len(running) and budget > 0:
            sequence = running[position]
            position += 1
            if sequence.in_flight:
                continue
            count = min(sequence.length - sequence.computed, budget)
            while not self._reserve(sequence, count):
                pressed = True
                victim = running.pop()
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                budget -= count
                sequence.in_flight = True
                plan.append((sequence, count, sequence.ticket))
        if not pressed:
            self._admit(plan, now, budget)
        return plan

    def _reserve(self, sequence: Sequence, count: int) -> bool:
        """Take the blocks that `count` more tokens need, publish those they fill; False if none is left."""
        size = self.limits.block_size
        upto = sequence.computed + count
        missing = -(-upto // size) - len(sequence.blocks)
        if missing > 0:
            blocks = self.cache.allocate(missing)
            if blocks is None:
                return False
            sequence.blocks += blocks
        full = upto // size
        if full > sequence.registered and self.limits.prefix_caching:
            sequence.hash_upto(full, size)
            new = slice(sequence.registered, full)
            self.cache.register(sequence.blocks[new], sequence.hashes[new])
            sequence.registered = full
        return True

    def _preempt(self, victim: Sequence) -> None:
        self.cache.release(victim.blocks)
        victim.blocks = []
        victim.computed = victim.registered = 0
        victim.in_flight = False
        victim.ticket += 1
        self.waiting.appendleft(victim)
        self._observer.preempted()

    def _admit(self, plan: list[Work], now: float, budget: int) -> None:
        skipped: list[Sequence] = []
        adapters = {sequence.adapter for sequence in self.running if sequence.adapter}
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting.popleft()
            adapter = sequence.adapter
            if adapter and adapter not in adapters and len(adapters) >= self.limits.max_loras:
                skipped.append(sequence)
                continue
            count = self._enter(sequence, budget)
            if count == 0:
                self.waiting.appendleft(sequence)
                break
            if adapter:
                adapters.add(adapter)
            if sequence.scheduled_at == NEVER:
                sequence.scheduled_at = max(now, sequence.arrived_at)
                sequence.cached_tokens = sequence.computed
                self._observer.scheduled(sequence)
            budget -= count
            sequence.in_flight = True
            self.running.append(sequence)
            plan.append((sequence, count, sequence.ticket))
        self.waiting.extendleft(reversed(skipped))

    def _enter(self, sequence: Sequence, budget: int) -> int:
        """Give a waiting sequence its cached blocks and the missing ones; return the tokens to compute.

        0 means that there are not enough blocks. Cached blocks that nobody holds count against the free
        ones, since taking them takes those.
        """
        size = self.limits.block_size
        cache = self.cache
        hits: list[int] = []
        if self.limits.prefix_caching:
            sequence.hash_upto(sequence.length // size, size)
            hits = cache.match(sequence.hashes, (sequence.length - 1) // size)
        computed = len(hits) * size
        count = min(sequence.length - computed, budget)
        needed = -(-(computed + count) // size) - len(hits)
        if needed + cache.free_among(hits) > cache.free:
            return 0
        cache.share(hits)
        sequence.blocks = hits
        sequence.computed = computed
        sequence.registered = len(hits)
        self._reserve(sequence, count)
        return count

    def _complete(self, work: list[Work], due: float) -> None:
        done: list[Sequence] = []
        interval, alike = 0.0, 0
        for sequence, count, ticket in work:
            if sequence.ticket != ticket:
                continue
            sequence.in_flight = False
            sequence.computed += count
            if sequence.computed < sequence.length:
                continue
            if sequence.answer.length == 0:
                done.append(sequence)
                continue
            sequence.generated += 1
            sequence.length += 1
            if sequence.generated == 1:
                sequence.first_token_at = due
                self._observer.first_token(sequence)
            else:
                since = due - sequence.last_token_at
                if since != interval:
                    if alike:
                        self._observer.tokens(interval, alike)
                    interval, alike = since, 0
                alike += 1
            sequence.last_token_at = due
            if sequence.generated >= sequence.answer.length:
                done.append(sequence)
            else:
                sequence.listener.token(sequence)
        if alike:
            self._observer.tokens(interval, alike)
        if done:
            self._finish(done, due)

    def _finish(self, done: list[Sequence], now: float) -> None:
        for sequence in done:
            self._leave(sequence, now, sequence.answer.finish_reason)
        self.running = [sequence for sequence in self.running if sequence.live]
        for sequence in done:
            sequence.listener.finished(sequence)

    def _leave(self, sequence: Sequence, now: float, reason: str) -> None:
        self.cache.release(sequence.blocks)
        sequence.blocks = []
        sequence.live = False
        sequence.ticket += 1
        self._observer.finished(sequence, now, reason)
