"""Which endpoint probably holds which prefix, from what was sent there.

Two structures, owned by the event loop's thread:

* ``_masks``: key -> bitmask of the slots that hold it (a Python integer). Keys are chained, so along one
  prompt the masks can only lose bits, and the positions where they do are found by galloping instead of
  visiting every key.
* per endpoint: key -> stamp of its last touch, and a log of touches, oldest first. A touch covers a whole
  chain from its first key, so what it still owns (keys nobody touched later) is always the tail of its chain.
  Eviction takes the oldest touch's tail from its end.

Invariant: an endpoint that holds key i of a chain holds keys 0 to i-1 of it. Touching whole chains, evicting
tails first, and undoing only what a touch itself added all preserve it.

Keys stand for more blocks the deeper they are (``block_hash``). What an endpoint remembers is counted in
blocks, as its engine counts; what the index occupies is counted in keys, as memory is.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from epp.interfaces.endpoint import Floats
from epp.kvcache.block_hash import blocks_at, keys_within

MAX_INDEXED_KEYS: Final = 4_000_000
"""(endpoint, key) pairs one index holds, 120 to 220 bytes each, most when prompts are short.
Endpoints share them equally."""

_LOG_SLACK: Final = 4096
"""Entries a log may hold beyond twice its live keys before it is compacted."""

_FEW_BITS: Final = 12
"""Bits up to which walking an integer is faster than unpacking it."""


class Touch(msgspec.Struct, gc=False):
    """One prompt recorded for one endpoint. Owns its keys up to ``end``, less those touched later."""

    slot: int
    generation: int
    stamp: int
    keys: list[int]
    first: int
    """Position of the first of them in the prompt."""
    end: int
    """Keys from here on are gone."""
    held: int
    """Keys that were held before the touch; it added those from here on."""
    believed: int
    """Blocks of the prompt that were held before, counted from the first."""
    before: int
    """Stamp of the deepest of those; 0 = none, or its request has not been confirmed."""


class Holdings(NamedTuple):
    """How much one endpoint holds."""

    slot: int
    generation: int
    blocks: int
    keys: int
    unconfirmed: int
    """Prompts sent there whose computation has not been seen."""


class _Holding:
    """What one endpoint holds."""

    __slots__ = ("bit", "blocks", "generation", "log", "logged", "pending", "stamps")

    def __init__(self, slot: int, generation: int) -> None:
        self.bit = 1 << slot
        self.generation = generation
        self.blocks = 0
        """What the keys of ``stamps`` stand for."""
        self.stamps: dict[int, int] = {}
        self.log: deque[Touch] = deque()
        self.logged = 0
        self.pending: set[int] = set()
        """Stamps of touches whose request has not been computed as far as we know."""

    def start(self, touch: Touch) -> int:
        """Position of the first key the touch still owns; its end when it owns none."""
        stamps, stamp, keys = self.stamps, touch.stamp, touch.keys
        low, high = 0, touch.end
        if high and stamps.get(keys[0]) == stamp:
            return 0
        while low < high:
            middle = (low + high) // 2
            if stamps.get(keys[middle]) == stamp:
                high = middle
            else:
                low = middle + 1
        return low


class ApproximateIndex:
    """Prefixes by endpoint slot. ``len`` is the number of (endpoint, block) pairs remembered."""

    def __init__(self, max_keys: int = MAX_INDEXED_KEYS) -> None:
        self._max_keys = max_keys
        self._masks: dict[int, int] = {}
        self._holdings: dict[int, _Holding] = {}
        self._share = max_keys
        self._clock = 0

    def __len__(self) -> int:
        return sum(holding.blocks for holding in self._holdings.values())

    def runs(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """Longest matches: ``(length, slots)``, length rising; each holder is in one, as a bit of ``slots``.

        Lengths are in keys. Costs a few look-ups per distinct length instead of one per key.
        """
        get = self._masks.get
        mask = get(keys[0], 0) if keys else 0
        found: list[tuple[int, int]] = []
        low, count = 0, len(keys)
        while mask:
            # keys[low] has this mask; find the first position that has another.
            step, high = 1, low + 1
            while high < count and get(keys[high], 0) == mask:
                low = high
                high = low + step
                step += step
            high = min(high, count)
            while high - low > 1:
                middle = (low + high) // 2
                if get(keys[middle], 0) == mask:
                    low = middle
                else:
                    high = middle
            following = get(keys[high], 0) if high < count else 0
            found.append((high, mask & ~following))
            mask, low = following, high
        return found

    def add_matches(self, keys: Sequence[int], per_slot: Floats, limit: int) -> None:
        """Add each slot's longest match with ``keys``, in blocks, at most ``limit``, to ``per_slot``."""
        for matched, slots in self.runs(keys):
            blocks = min(blocks_at(matched), limit)
            if slots.bit_count() <= _FEW_BITS:
                while slots:
                    low = slots & -slots
                    per_slot[low.bit_length() - 1] += blocks
                    slots ^= low
            else:
                packed = slots.to_bytes((per_slot.size + 7) // 8, "little")
                bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=per_slot.size, bitorder="little")
                per_slot[bits.view(np.bool_)] += blocks

    def record(self, slot: int, generation: int, keys: list[int], capacity: int) -> Touch:
        """A prompt goes to an endpoint that remembers ``capacity`` blocks (at least 1); of a longer one, the
        head. The list is kept; it must not change afterwards.
        """
        holding = self._holdings.get(slot)
        if holding is None or holding.generation != generation:
            holding = self._admit(slot, generation)
        if len(keys) > self._share or blocks_at(len(keys)) > capacity:
            keys = keys[: min(self._share, keys_within(capacity))]
        stamps = holding.stamps
        held = _held(keys, stamps)
        believed = before = 0
        if held:
            believed, before = blocks_at(held), stamps[keys[held - 1]]
            if before in holding.pending:
                before = 0
        self._mark(keys[held:] if held else keys, holding.bit)
        self._clock = stamp = self._clock + 1
        for key in keys:
            stamps[key] = stamp
        count = len(keys)
        touch = Touch(slot, generation, stamp, keys, 0, count, held, believed, before)
        holding.log.append(touch)
        holding.logged += count
        holding.pending.add(stamp)
        holding.blocks += blocks_at(count) - believed
        self._shrink(holding, capacity)
        if holding.logged > 2 * len(stamps) + _LOG_SLACK:
            _compact(holding)
        return touch

    def confirm(self, touch: Touch) -> None:
        """The engine has computed the prompt: from here on it counts as evidence."""
        holding = self._holdings.get(touch.slot)
        if holding is not None and holding.generation == touch.generation:
            holding.pending.discard(touch.stamp)

    def retract(self, touch: Touch) -> None:
        """The engine never computed the prompt: forget the blocks this touch added, unless touched since."""
        holding = self._holdings.get(touch.slot)
        if holding is None or holding.generation != touch.generation:
            return
        holding.pending.discard(touch.stamp)
        keep = max(touch.held, holding.start(touch))
        if keep < touch.end:
            self._cut(holding, touch, keep)

    def forget_older(self, touch: Touch) -> None:
        """The engine lacked blocks the endpoint was believed to hold: they were evicted, so everything
        touched no later than the deepest of them is gone as well. What the touch itself computed stays.
        """
        holding = self._holdings.get(touch.slot)
        if holding is None or holding.generation != touch.generation:
            return
        while holding.log and holding.log[0].stamp <= touch.before:
            self._evict(holding, holding.blocks, 0)

    def remove(self, slot: int) -> None:
        """Forget an endpoint."""
        holding = self._holdings.pop(slot, None)
        if holding is not None:
            self._unmark(holding.stamps, holding.bit)
            self._share_among(len(self._holdings))

    def largest(self, count: int) -> list[Holdings]:
        """The endpoints that hold most blocks, most first."""
        found = heapq.nlargest(count, self._holdings.items(), key=lambda item: item[1].blocks)
        return [
            Holdings(slot, each.generation, each.blocks, len(each.stamps), len(each.pending))
            for slot, each in found
        ]

    @property
    def keys(self) -> tuple[int, int, int]:
        """Distinct keys, (endpoint, key) pairs, and the most pairs there may be."""
        pairs = sum(len(holding.stamps) for holding in self._holdings.values())
        return len(self._masks), pairs, self._max_keys

    def slots(self) -> dict[int, int]:
        """Slot -> generation of every endpoint the index knows."""
        return {slot: holding.generation for slot, holding in self._holdings.items()}

    def _admit(self, slot: int, generation: int) -> _Holding:
        self.remove(slot)
        self._share_among(len(self._holdings) + 1)
        for other in self._holdings.values():
            self._shrink(other, other.blocks)
        holding = self._holdings[slot] = _Holding(slot, generation)
        return holding

    def _share_among(self, endpoints: int) -> None:
        self._share = max(1, self._max_keys // max(1, endpoints))

    def _mark(self, keys: list[int], bit: int) -> None:
        masks = self._masks
        get = masks.get
        for key in keys:
            masks[key] = get(key, 0) | bit

    def _unmark(self, keys: Iterable[int], bit: int) -> None:
        """Most keys have one holder: they are popped first, and put back if not."""
        masks = self._masks
        pop = masks.pop
        for key in keys:
            mask = pop(key)
            if mask != bit:
                masks[key] = mask ^ bit

    def _shrink(self, holding: _Holding, capacity: int) -> None:
        """Evict until an endpoint holds at most ``capacity`` blocks, in no more keys than its share."""
        stamps, share = holding.stamps, self._share
        while holding.blocks > capacity or len(stamps) > share:
            self._evict(holding, holding.blocks - capacity, len(stamps) - share)

    def _evict(self, holding: _Holding, blocks: int, keys: int) -> None:
        """Drop at least so many blocks and keys from the tail of the oldest touch, or all it still owns, and
        then the touch itself.
        """
        touch = holding.log[0]
        start, first, end = holding.start(touch), touch.first, touch.end
        left = keys_within(max(0, blocks_at(first + end) - blocks)) - first
        keep = max(start, min(end, end - keys, left))
        if keep < end:
            self._cut(holding, touch, keep)
        if keep == start:
            holding.log.popleft()
            holding.logged -= len(touch.keys)

    def _cut(self, holding: _Holding, touch: Touch, keep: int) -> None:
        """Take the keys from position ``keep`` on, all of which the touch owns, from its endpoint."""
        keys, stamps, first = touch.keys[keep : touch.end], holding.stamps, touch.first
        for key in keys:
            del stamps[key]
        self._unmark(keys, holding.bit)
        holding.blocks -= blocks_at(first + touch.end) - blocks_at(first + keep)
        touch.end = keep


def _held(keys: Sequence[int], stamps: Container[int]) -> int:
    """How many of the first ``keys`` are held."""
    low, high = 0, len(keys)
    if not high or keys[0] not in stamps:
        return 0
    while low < high:
        middle = (low + high) // 2
        if keys[middle] in stamps:
            low = middle + 1
        else:
            high = middle
    return low


def _compact(holding: _Holding) -> None:
    """Drop from the log what later touches own: a hot prompt is logged once per request, held only once."""
    kept: deque[Touch] = deque()
    logged = 0
    for touch in holding.log:
        start = holding.start(touch)
        if start < touch.end:
            touch.keys = touch.keys[start : touch.end]
            touch.first += start
            touch.held = max(0, touch.held - start)
            touch.end = len(touch.keys)
            kept.append(touch)
            logged += touch.end
    holding.log, holding.logged = kept, logged
