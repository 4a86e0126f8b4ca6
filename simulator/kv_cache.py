"""Block-true KV cache of one replica: which blocks exist, who uses them, which content they still hold.

A block is a number below `capacity`. It is either in use (one reference per sequence that holds it) or free;
a free block may still be *cached*, that is findable by its chained hash until it is evicted. Free blocks are
taken in the order they became free, never-used ones first, and a sequence's blocks become free tail first, so
the end of a prefix is forgotten before its beginning. The content of a block is its chained hash: equal
hashes mean equal tokens from the start of the prompt on.

Two sequences that compute the same tokens at the same time hold two blocks with one hash; both stay findable
until each is evicted.

No I/O, no clock; the engine is the only writer.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

_NO_HASH = -1


class KvCache:
    """Reference-counted blocks with an LRU free list; `used + free == capacity` at any time."""

    def __init__(self, capacity: int, *, prefix_caching: bool = True) -> None:
        self.capacity = capacity
        self.prefix_caching = prefix_caching
        # Blocks come into being when first taken, so that an idle replica with a large cache costs nothing.
        self._references: list[int] = []
        self._hashes: list[int] = []
        self._free: OrderedDict[int, None] = OrderedDict()
        self._cached: dict[int, int] = {}
        self._twins: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        """Blocks that no sequence holds, cached ones included."""
        return self.capacity - len(self._references) + len(self._free)

    @property
    def used(self) -> int:
        """Blocks that at least one sequence holds."""
        return len(self._references) - len(self._free)

    @property
    def cached(self) -> int:
        """Distinct block contents that can be found."""
        return len(self._cached)

    def match(self, hashes: Sequence[int], limit: int) -> list[int]:
        """Return the blocks of the longest cached prefix of `hashes`, at most `limit`; nothing is taken."""
        found: list[int] = []
        if not self.prefix_caching:
            return found
        lookup = self._cached.get
        for content in hashes[:limit]:
            block = lookup(content)
            if block is None:
                break
            found.append(block)
        return found

    def free_among(self, blocks: Iterable[int]) -> int:
        """Count those of `blocks` that nobody holds, which `share` would take off the free list."""
        references = self._references
        return sum(1 for block in blocks if references[block] == 0)

    def share(self, blocks: Iterable[int]) -> None:
        """Add one reference to each of `blocks`, found by `match`."""
        references = self._references
        for block in blocks:
            if references[block] == 0:
                del self._free[block]
            references[block] += 1

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks with one reference each, evicting the oldest; None when fewer are free."""
        if count > self.free:
            return None
        first_new = len(self._references)
        new = min(count, self.capacity - first_new)
        blocks = list(range(first_new, first_new + new))
        self._references.extend([1] * new)
        self._hashes.extend([_NO_HASH] * new)
        references, hashes, cached, twins = self._references, self._hashes, self._cached, self._twins
        take_oldest = self._free.popitem
        for _ in range(count - new):
            block, _ = take_oldest(last=False)
            content = hashes[block]
            if content in twins:
                self._forget_twin(block)
            elif content != _NO_HASH:
                del cached[content]
            hashes[block] = _NO_HASH
            references[block] = 1
            blocks.append(block)
        return blocks

    def register(self, blocks: Sequence[int], contents: Sequence[int]) -> None:
        """Make each of `blocks`, held by the caller and full, findable under its chained hash."""
        if not self.prefix_caching:
            return
        hashes, add = self._hashes, self._cached.setdefault
        for block, content in zip(blocks, contents, strict=True):
            hashes[block] = content
            if add(content, block) != block:
                self._twins.setdefault(content, []).append(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference from each of a sequence's `blocks`; the last becomes free, and old, first."""
        references = self._references
        for block in reversed(blocks):
            references[block] -= 1
            if references[block] == 0:
                self._free[block] = None

    def _forget_twin(self, block: int) -> None:
        """Evict one of several blocks with the same content; the others stay findable."""
        content = self._hashes[block]
        twins = self._twins[content]
        if self._cached[content] == block:
            self._cached[content] = twins.pop(0)
        else:
            twins.remove(block)
        if not twins:
            del self._twins[content]
