"""Which endpoint probably holds which prefix, from what was sent there.

Two structures, owned by the event loop's thread:

* ``_masks``: block key -> bitmask of the slots that hold it (a Python integer). Keys are chained, so along
  one prompt the masks can only lose bits, and the positions where they do are found by galloping instead of
  visiting every block.
* per endpoint: block key -> stamp of its last touch, and a log of touches, oldest first. A touch covers a
  whole chain from its first block, so what it still owns (blocks nobody touched later) is always the tail of
  its chain. Eviction takes the oldest touch's tail from its end.

Invariant: an endpoint that holds block i of a chain holds blocks 0 to i-1 of it. Touching whole chains,
evicting tails first, and undoing only what a touch itself added all preserve it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from epp.interfaces.endpoint import Floats

MAX_INDEXED_BLOCKS: Final = 4_000_000
"""(endpoint, block) pairs one index holds, about 150 bytes each. Endpoints share them equally."""

_LOG_SLACK: Final = 4096
"""Entries a log may hold beyond twice its live blocks before it is compacted."""

_FEW_BITS: Final = 6
"""Bits up to which walking an integer is faster than unpacking it."""


class Touch(msgspec.Struct, gc=False):
    """One prompt recorded for one endpoint. Owns its keys up to ``end``, less those touched later."""

    slot: int
    generation: int
    stamp: int
    keys: list[int]
    end: int
    """Blocks from here on are gone."""
    held: int
    """Keys that were held before the touch; it added those from here on."""
    believed: int
    """Blocks of the prompt that were held before, counted from the first."""
    before: int
    """Stamp of the deepest of those; 0 = none, or its request has not been confirmed."""


class _Holding:
    """What one endpoint holds."""

    __slots__ = ("bit", "generation", "log", "logged", "pending", "stamps")

    def __init__(self, slot: int, generation: int) -> None:
        self.bit = 1 << slot
        self.generation = generation
        self.stamps: dict[int, int] = {}
        self.log: deque[Touch] = deque()
        self.logged = 0
        self.pending: set[int] = set()
        """Stamps of touches whose request has not been computed as far as we know."""

    def held(self, keys: Sequence[int]) -> int:
        """How many of the first ``keys`` are held."""
        stamps = self.stamps
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle] in stamps:
                low = middle + 1
            else:
                high = middle
        return low

    def start(self, touch: Touch) -> int:
        """Position of the first block the touch still owns; its end when it owns none."""
        stamps, stamp, keys = self.stamps, touch.stamp, touch.keys
        low, high = 0, touch.end
        while low < high:
            middle = (low + high) // 2
            if stamps.get(keys[middle]) == stamp:
                high = middle
            else:
                low = middle + 1
        return low


class ApproximateIndex:
    """Prefixes by endpoint slot. ``len`` is the number of (endpoint, block) pairs held."""

    def __init__(self, max_blocks: int = MAX_INDEXED_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._masks: dict[int, int] = {}
        self._holdings: dict[int, _Holding] = {}
        self._share = max_blocks
        self._clock = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def runs(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """Longest matches: ``(length, slots)``, length rising; each holder is in one, as a bit of ``slots``.

        Costs a few look-ups per distinct length instead of one per block.
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

    def add_matches(self, keys: Sequence[int], per_slot: Floats) -> None:
        """Add each slot's longest match with ``keys``, in blocks, to ``per_slot``."""
        for length, slots in self.runs(keys):
            if slots.bit_count() <= _FEW_BITS:
                while slots:
                    low = slots & -slots
                    per_slot[low.bit_length() - 1] += length
                    slots ^= low
            else:
                packed = slots.to_bytes((per_slot.size + 7) // 8, "little")
                bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=per_slot.size, bitorder="little")
                per_slot[bits.view(np.bool_)] += length

    def record(self, slot: int, generation: int, keys: list[int], capacity: int) -> Touch:
        """A prompt goes to an endpoint that remembers ``capacity`` blocks; of a longer prompt, the head.

        The list is kept; it must not change afterwards.
        """
        holding = self._holding(slot, generation)
        limit = max(1, min(capacity, self._share))
        if len(keys) > limit:
            keys = keys[:limit]
        held = holding.held(keys)
        before = holding.stamps[keys[held - 1]] if held else 0
        if before in holding.pending:
            before = 0
        self._mark(keys[held:] if held else keys, holding.bit)
        self._clock += 1
        stamp = self._clock
        touch = Touch(slot, generation, stamp, keys, len(keys), held, held, before)
        holding.stamps.update(dict.fromkeys(keys, stamp))
        holding.log.append(touch)
        holding.logged += len(keys)
        holding.pending.add(stamp)
        self._size += len(keys) - held
        self._shrink(holding, limit)
        if holding.logged > 2 * len(holding.stamps) + _LOG_SLACK:
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
            self._drop(holding, touch.keys[keep : touch.end])
            touch.end = keep

    def forget_older(self, touch: Touch) -> None:
        """The engine lacked blocks the endpoint was believed to hold: they were evicted, so everything
        touched no later than the deepest of them is gone as well. What the touch itself computed stays.
        """
        holding = self._holdings.get(touch.slot)
        if holding is None or holding.generation != touch.generation:
            return
        while holding.log and holding.log[0].stamp <= touch.before:
            self._evict_oldest(holding, len(holding.stamps))

    def remove(self, slot: int) -> None:
        """Forget an endpoint."""
        holding = self._holdings.pop(slot, None)
        if holding is not None:
            self._drop(holding, list(holding.stamps))
            self._share = self._max_blocks // max(1, len(self._holdings))

    def slots(self) -> dict[int, int]:
        """Slot -> generation of every endpoint the index knows."""
        return {slot: holding.generation for slot, holding in self._holdings.items()}

    def _holding(self, slot: int, generation: int) -> _Holding:
        holding = self._holdings.get(slot)
        if holding is not None and holding.generation == generation:
            return holding
        self.remove(slot)
        self._share = self._max_blocks // (len(self._holdings) + 1)
        for other in self._holdings.values():
            self._shrink(other, self._share)
        holding = self._holdings[slot] = _Holding(slot, generation)
        return holding

    def _mark(self, keys: list[int], bit: int) -> None:
        """Set a bit on blocks that lack it. Known blocks come first: a known block's ancestors are known."""
        masks = self._masks
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle] in masks:
                low = middle + 1
            else:
                high = middle
        for key in keys[:low]:
            masks[key] |= bit
        if low < len(keys):
            masks.update(dict.fromkeys(keys[low:] if low else keys, bit))

    def _shrink(self, holding: _Holding, limit: int) -> None:
        while (excess := len(holding.stamps) - limit) > 0:
            self._evict_oldest(holding, excess)

    def _evict_oldest(self, holding: _Holding, count: int) -> None:
        """Drop up to ``count`` blocks from the tail of the oldest touch, and the touch when it is empty."""
        touch = holding.log[0]
        start = holding.start(touch)
        keep = max(start, touch.end - count)
        self._drop(holding, touch.keys[keep : touch.end])
        touch.end = keep
        if keep == start:
            holding.log.popleft()
            holding.logged -= len(touch.keys)

    def _drop(self, holding: _Holding, keys: list[int]) -> None:
        """Take blocks from an endpoint. Most have one holder: they are popped first, and put back if not."""
        masks, bit = self._masks, holding.bit
        popped = list(map(masks.pop, keys))
        deque(map(holding.stamps.pop, keys), maxlen=0)
        if popped.count(bit) != len(popped):
            for key, mask in zip(keys, popped, strict=True):
                if mask != bit:
                    masks[key] = mask ^ bit
        self._size -= len(keys)


def _compact(holding: _Holding) -> None:
    """Drop from the log what later touches own: a hot prompt is logged once per request, held only once."""
    kept: deque[Touch] = deque()
    logged = 0
    for touch in holding.log:
        start = holding.start(touch)
        if start < touch.end:
            touch.keys = touch.keys[start : touch.end]
            touch.held = max(0, touch.held - start)
            touch.end = len(touch.keys)
            kept.append(touch)
            logged += touch.end
    holding.log, holding.logged = kept, logged
