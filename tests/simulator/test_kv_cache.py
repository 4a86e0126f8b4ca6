"""The block pool: references, eviction order, prefix search, and that no block is ever lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.kv_cache import KvCache


def filled(cache: KvCache, hashes: list[int]) -> list[int]:
    """Blocks of a sequence that computed the contents `hashes`."""
    blocks = cache.allocate(len(hashes))
    assert blocks is not None
    cache.register(blocks, hashes)
    return blocks


def test_new_cache_is_free_and_holds_nothing():
    cache = KvCache(4)
    assert (cache.free, cache.used, cache.cached) == (4, 0, 0)


def test_refuses_more_blocks_than_are_free_and_takes_none():
    cache = KvCache(4)
    assert cache.allocate(3) == [0, 1, 2]
    assert cache.allocate(2) is None
    assert (cache.free, cache.used) == (1, 3)


def test_match_stops_at_the_first_unknown_block():
    cache = KvCache(8)
    blocks = filled(cache, [10, 11, 12])
    assert cache.match([10, 11, 99, 12], limit=9) == blocks[:2]
    assert cache.match([99, 11, 12], limit=9) == []


def test_match_is_limited():
    cache = KvCache(8)
    blocks = filled(cache, [10, 11, 12])
    assert cache.match([10, 11, 12], limit=2) == blocks[:2]


def test_released_blocks_stay_findable_until_they_are_taken():
    cache = KvCache(4)
    blocks = filled(cache, [10, 11])
    cache.release(blocks)
    assert (cache.free, cache.cached) == (4, 2)
    assert cache.match([10, 11], limit=9) == blocks


def test_never_used_blocks_are_taken_before_cached_ones():
    cache = KvCache(4)
    cache.release(filled(cache, [10, 11]))
    assert cache.allocate(2) == [2, 3]
    assert cache.match([10, 11], limit=9) == [0, 1]


def test_tail_of_a_prefix_is_evicted_before_its_head():
    cache = KvCache(3)
    cache.release(filled(cache, [10, 11, 12]))
    cache.allocate(1)
    assert cache.match([10, 11, 12], limit=9) == [0, 1]
    cache.allocate(1)
    assert cache.match([10, 11, 12], limit=9) == [0]
    cache.allocate(1)
    assert cache.match([10, 11, 12], limit=9) == []


def test_least_recently_released_sequence_is_evicted_first():
    cache = KvCache(4)
    old, recent = filled(cache, [10, 11]), filled(cache, [20, 21])
    cache.release(old)
    cache.release(recent)
    cache.allocate(2)
    assert cache.match([10], limit=9) == []
    assert cache.match([20, 21], limit=9) == recent


def test_sharing_a_free_block_saves_it_from_eviction():
    cache = KvCache(2)
    blocks = filled(cache, [10, 11])
    cache.release(blocks)
    cache.share([blocks[1]])
    assert (cache.free, cache.used) == (1, 1)
    assert cache.allocate(1) == [blocks[0]]
    assert cache.allocate(1) is None


def test_shared_block_is_free_when_the_last_holder_releases_it():
    cache = KvCache(2)
    blocks = filled(cache, [10])
    cache.share(blocks)
    cache.release(blocks)
    assert cache.used == 1
    cache.release(blocks)
    assert cache.used == 0


def test_counts_hits_that_nobody_holds():
    cache = KvCache(4)
    idle, busy = filled(cache, [10]), filled(cache, [20])
    cache.release(idle)
    assert cache.free_among([*idle, *busy]) == 1


def test_equal_content_in_two_blocks_is_findable_until_both_are_evicted():
    cache = KvCache(2)
    first, second = filled(cache, [10]), filled(cache, [10])
    assert cache.cached == 1
    cache.release(first)
    cache.release(second)
    assert cache.allocate(1) == first
    assert cache.match([10], limit=9) == second
    assert cache.allocate(1) == second
    assert (cache.match([10], limit=9), cache.cached) == ([], 0)


def test_eviction_of_the_second_twin_leaves_the_first_findable():
    cache = KvCache(2)
    first, second = filled(cache, [10]), filled(cache, [10])
    cache.release(second)
    cache.release(first)
    assert cache.allocate(1) == second
    assert cache.match([10], limit=9) == first


def test_partial_block_without_content_leaves_no_trace_when_reused():
    cache = KvCache(1)
    blocks = cache.allocate(1)
    assert blocks is not None
    cache.release(blocks)
    assert cache.allocate(1) == blocks
    assert cache.cached == 0


def test_without_prefix_caching_nothing_is_found():
    cache = KvCache(2, prefix_caching=False)
    filled(cache, [10])
    assert (cache.match([10], limit=9), cache.cached) == ([], 0)


class KvCacheMachine(RuleBasedStateMachine):
    """Sequences come and go over a small pool, next to a model that knows who holds what."""

    CAPACITY = 12

    def __init__(self) -> None:
        super().__init__()
        self.cache = KvCache(self.CAPACITY)
        self.sequences: list[list[int]] = []
        self.content: dict[int, int] = {}

    def references(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for blocks in self.sequences:
            for block in blocks:
                counts[block] = counts.get(block, 0) + 1
        return counts

    @rule(family=st.integers(0, 3), length=st.integers(1, 6), partial=st.booleans())
    def start(self, family: int, length: int, partial: bool) -> None:
        """A prompt of one of four families arrives, as the engine would take it in."""
        hashes = [family * 100 + position for position in range(length)]
        free = self.cache.free
        hits = self.cache.match(hashes, length)
        assert [self.content[block] for block in hits] == hashes[: len(hits)]
        needed = length - len(hits) + partial
        idle = self.cache.free_among(hits)
        assert idle == sum(1 for block in hits if block not in self.references())
        if needed + idle > free:
            assert self.cache.free == free
            return
        self.cache.share(hits)
        blocks = self.cache.allocate(needed)
        assert blocks is not None
        assert not set(blocks) & set(self.references())
        for block in blocks:
            self.content.pop(block, None)
        new = hashes[len(hits) :]
        self.cache.register(blocks[: len(new)], new)
        self.content |= zip(blocks, new, strict=False)
        self.sequences.append([*hits, *blocks])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A sequence finishes or is aborted."""
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        self.cache.release(self.sequences.pop(index))

    @rule(count=st.integers(1, CAPACITY + 2))
    def ask_for_too_many(self, count: int) -> None:
        """A refused allocation changes nothing."""
        free = self.cache.free
        if count > free:
            assert self.cache.allocate(count) is None
            assert self.cache.free == free

    @invariant()
    def no_block_is_lost(self) -> None:
        assert self.cache.free + self.cache.used == self.CAPACITY
        assert self.cache.used == len(self.references())

    @invariant()
    def all_content_is_findable(self) -> None:
        assert self.cache.cached == len(set(self.content.values()))
        for content in self.content.values():
            (block,) = self.cache.match([content], 1)
            assert self.content[block] == content


KvCacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestKvCacheMachine = KvCacheMachine.TestCase
