"""The approximate index credits contiguous prefixes only, forgets tails first, and keeps within its caps.

Texts are prompts of one block per character. Each of their first 16 blocks has a key, then 4 share one, and
beyond 80 blocks 16 do.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from epp.kvcache import approximate_index
from epp.kvcache.approximate_index import ApproximateIndex, Touch
from epp.kvcache.block_hash import block_keys, chain_seed

SEED = chain_seed("m")


def chain(text: str) -> list[int]:
    """Keys of a text."""
    return block_keys("".join(c * 4 for c in text).encode(), 1, SEED, 1000)


def matches(index: ApproximateIndex, text: str, slots: int = 8, limit: int = 1000) -> list[int]:
    """Blocks of the prompt that each slot holds."""
    per_slot = np.zeros(slots)
    index.add_matches(chain(text), per_slot, limit)
    return [int(n) for n in per_slot]


def test_matches_are_contiguous_from_the_start():
    index = ApproximateIndex()
    index.record(0, 0, chain("abcd"), 100)
    index.record(1, 0, chain("abxy"), 100)
    index.record(3, 0, chain("a"), 100)
    assert matches(index, "abcde", 4) == [4, 2, 0, 1]
    assert matches(index, "abxyz", 4) == [2, 4, 0, 1]
    assert matches(index, "bcd", 4) == [0, 0, 0, 0]
    assert matches(index, "", 4) == [0, 0, 0, 0]
    assert index.runs(chain("abcde")) == [(1, 0b1000), (2, 0b0010), (4, 0b0001)]
    assert len(index) == 9


def test_many_holders_are_unpacked_as_few_are():
    index = ApproximateIndex()
    for slot in range(70):
        index.record(slot, 0, chain("ab" if slot % 2 else "abc"), 100)
    assert matches(index, "abc", 70) == [2 if slot % 2 else 3 for slot in range(70)]


def test_deep_matches_are_in_blocks_to_the_end_of_the_last_common_piece():
    index = ApproximateIndex()
    for slot, length in enumerate((16, 19, 20, 79, 80, 95, 96, 300)):
        index.record(slot, 0, chain("a" * length), 1000)
    assert matches(index, "a" * 200) == [16, 16, 20, 76, 80, 80, 96, 192]
    assert matches(index, "a" * 90 + "b" * 90) == [16, 16, 20, 76, 80, 80, 80, 80]
    assert matches(index, "a" * 18 + "b") == [16] * 8
    assert len(index) == 16 + 16 + 20 + 76 + 80 + 80 + 96 + 288


def test_a_match_is_no_longer_than_the_limit():
    index = ApproximateIndex()
    index.record(0, 0, chain("a" * 96), 1000)
    index.record(1, 0, chain("a" * 20), 1000)
    assert matches(index, "a" * 96, 2, limit=95) == [95, 20]
    assert matches(index, "a" * 96, 2, limit=0) == [0, 0]


def test_repeating_a_prompt_adds_nothing():
    index = ApproximateIndex()
    index.record(0, 0, chain("abc"), 100)
    assert index.record(0, 0, chain("abc"), 100).believed == 3
    assert len(index) == 3


def test_the_least_recently_touched_tail_goes_first():
    index = ApproximateIndex()
    index.record(0, 0, chain("abcd"), 8)
    index.record(0, 0, chain("wxyz"), 8)
    index.record(0, 0, chain("abQ"), 8)
    assert matches(index, "abcd")[0] == 3, "the end of the oldest chain went"
    assert matches(index, "wxyz")[0] == 4
    index.record(0, 0, chain("klm"), 8)
    assert matches(index, "abcd")[0] == 2
    assert matches(index, "abQ")[0] == 3
    assert matches(index, "wxyz")[0] == 2
    assert len(index) == 8


def test_a_prompt_longer_than_the_capacity_keeps_its_head():
    index = ApproximateIndex()
    index.record(0, 0, chain("abcdef"), 4)
    assert matches(index, "abcdef")[0] == 4
    index.record(0, 0, chain("xy"), 4)
    assert matches(index, "abcdef")[0] == 2


def test_capacity_is_counted_in_blocks_however_few_keys_they_have():
    index = ApproximateIndex()
    for letter in "abc":
        index.record(0, 0, chain(letter * 112), 300)
    assert [matches(index, letter * 112)[0] for letter in "abc"] == [76, 112, 112]
    assert len(index) == 300
    index.record(0, 0, chain("d" * 13), 300)
    assert [matches(index, letter * 112)[0] for letter in "abcd"] == [60, 112, 112, 13]
    assert len(index) == 297, "the last piece to go was larger than what was in excess"


def test_the_head_that_is_kept_of_a_long_prompt_ends_with_a_piece():
    index = ApproximateIndex()
    index.record(0, 0, chain("a" * 200), 95)
    assert matches(index, "a" * 200)[0] == 80
    assert index.record(0, 0, chain("a" * 200), 95).believed == 80


def test_a_smaller_capacity_takes_effect_with_the_next_prompt():
    index = ApproximateIndex()
    index.record(0, 0, chain("abcdef"), 100)
    index.record(0, 0, chain("x"), 3)
    assert (matches(index, "abcdef")[0], matches(index, "x")[0]) == (2, 1)


def test_a_removed_endpoint_is_forgotten_and_only_it():
    index = ApproximateIndex()
    index.record(0, 0, chain("abc"), 100)
    index.record(1, 0, chain("ab"), 100)
    index.remove(0)
    index.remove(5)
    assert matches(index, "abc", 2) == [0, 2]
    assert len(index) == 2
    assert index.slots() == {1: 0}


def test_the_next_tenant_of_a_slot_starts_empty():
    index = ApproximateIndex()
    old = index.record(0, 0, chain("abc"), 100)
    index.record(0, 1, chain("xy"), 100)
    assert matches(index, "abc")[0] == 0
    index.retract(old)
    index.confirm(old)
    index.forget_older(old)
    assert matches(index, "xy")[0] == 2
    assert len(index) == 2


def test_a_retracted_prompt_takes_back_only_what_it_added():
    index = ApproximateIndex()
    index.record(0, 0, chain("ab"), 100)
    touch = index.record(0, 0, chain("abcd"), 100)
    index.retract(touch)
    index.retract(touch)
    assert matches(index, "abcd")[0] == 2
    assert len(index) == 2


def test_a_retracted_prompt_leaves_what_others_touched_since():
    index = ApproximateIndex()
    touch = index.record(0, 0, chain("abcd"), 100)
    index.record(0, 0, chain("abcX"), 100)
    index.retract(touch)
    assert matches(index, "abcd")[0] == 3
    assert matches(index, "abcX")[0] == 4


def test_belief_counts_as_evidence_only_once_its_request_was_computed():
    index = ApproximateIndex()
    first = index.record(0, 0, chain("abc"), 100)
    assert index.record(0, 0, chain("abc"), 100).before == 0
    second = index.record(0, 0, chain("abcd"), 100)
    assert (second.believed, second.before) == (3, 0)
    index.confirm(second)
    assert index.record(0, 0, chain("abcd"), 100).before == second.stamp > first.stamp


def test_a_miss_forgets_what_is_at_least_as_stale_and_keeps_what_was_just_computed():
    index = ApproximateIndex()
    index.confirm(index.record(0, 0, chain("old"), 100))
    index.confirm(index.record(0, 0, chain("abc"), 100))
    index.confirm(index.record(0, 0, chain("new"), 100))
    touch = index.record(0, 0, chain("abcd"), 100)
    index.forget_older(touch)
    assert [matches(index, text)[0] for text in ("old", "abcd", "new")] == [0, 4, 3]


def test_without_confirmed_belief_nothing_is_forgotten():
    index = ApproximateIndex()
    index.record(0, 0, chain("old"), 100)
    index.forget_older(index.record(0, 0, chain("abc"), 100))
    assert matches(index, "old")[0] == 3


def test_endpoints_share_the_total_cap_equally():
    index = ApproximateIndex(max_keys=12)
    index.record(0, 0, chain("abcdefghijkl"), 100)
    assert len(index) == 12
    index.record(1, 0, chain("ABCDEFGHIJKL"), 100)
    assert [matches(index, "abcdefghijkl")[0], matches(index, "ABCDEFGHIJKL")[1]] == [6, 6]
    index.record(2, 0, chain("1234567"), 100)
    assert len(index) == 12
    index.remove(1)
    index.remove(2)
    index.record(0, 0, chain("abcdefghijkl"), 100)
    assert len(index) == 12


def test_the_total_cap_counts_keys():
    index = ApproximateIndex(max_keys=40)
    index.record(0, 0, chain("a" * 1000), 1000)
    assert (len(index), matches(index, "a" * 1000)[0]) == (208, 208)
    index.record(1, 0, chain("b" * 1000), 1000)
    assert [matches(index, "a" * 1000)[0], matches(index, "b" * 1000)[1]] == [32, 32]


def test_compacting_keeps_account_of_what_deep_keys_stand_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approximate_index, "_LOG_SLACK", 0)
    index = ApproximateIndex()
    index.record(0, 0, chain("a" * 112), 1000)
    for _ in range(5):
        index.record(0, 0, chain("a" * 80), 1000)
    assert next((touch.first, touch.end) for touch in index._holdings[0].log) == (32, 2)
    index.record(0, 0, chain("b" * 16), 112)
    assert matches(index, "a" * 112)[0] == 96
    assert len(index) == 112


def test_the_log_of_a_hot_prompt_stays_short(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approximate_index, "_LOG_SLACK", 0)
    index = ApproximateIndex()
    index.record(0, 0, chain("xyz"), 100)
    for _ in range(100):
        index.record(0, 0, chain("abcd"), 100)
    holding = index._holdings[0]
    assert sum(len(touch.keys) for touch in holding.log) <= 2 * len(index)
    assert matches(index, "abcd")[0] == 4
    assert matches(index, "xyz")[0] == 3


class Naive:
    """What the index must do, said plainly: per slot, an ordered map from prefix to last touch."""

    def __init__(self, max_keys: int) -> None:
        self.slots: dict[int, dict[str, int]] = {}
        self.max_keys = max_keys
        self.clock = 0

    @staticmethod
    def step(depth: int) -> int:
        """Blocks of the piece that begins so deep."""
        return 1 if depth < 16 else 4 if depth < 80 else 16

    def prefixes(self, text: str) -> list[str]:
        """Those that end with a full piece."""
        found, depth = [], 0
        while (depth := depth + self.step(depth)) <= len(text):
            found.append(text[:depth])
        return found

    def parent(self, prefix: str) -> str:
        return ["", *self.prefixes(prefix)][-2]

    def blocks(self, held: dict[str, int]) -> int:
        return sum(len(prefix) - len(self.parent(prefix)) for prefix in held)

    def match(self, slot: int, text: str) -> int:
        held, length = self.slots.get(slot, {}), 0
        for prefix in self.prefixes(text):
            if prefix not in held:
                break
            length = len(prefix)
        return length

    def shrink(self, held: dict[str, int], capacity: int) -> None:
        while self.blocks(held) > capacity or len(held) > self.max_keys // len(self.slots):
            del held[min(held, key=lambda prefix: (held[prefix], -len(prefix)))]

    def record(self, slot: int, text: str, capacity: int) -> tuple[int, int, list[str]]:
        held = self.slots.setdefault(slot, {})
        for other in self.slots.values():
            self.shrink(other, 10**6)
        kept = self.prefixes(text[:capacity])[: self.max_keys // len(self.slots)]
        believed = self.match(slot, kept[-1])
        self.clock += 1
        held.update(dict.fromkeys(kept, self.clock))
        self.shrink(held, capacity)
        return self.clock, believed, kept

    def retract(self, slot: int, stamp: int, believed: int, kept: list[str]) -> None:
        held = self.slots.get(slot, {})
        for prefix in kept:
            if len(prefix) > believed and held.get(prefix) == stamp:
                del held[prefix]

    def forget(self, slot: int, before: int) -> None:
        held = self.slots.get(slot, {})
        for prefix in [p for p, stamp in held.items() if stamp <= before]:
            del held[prefix]


TEXTS = st.one_of(
    st.text(alphabet="ab", min_size=1, max_size=9),
    # Prompts that part in the middle of pieces of every size.
    st.text(alphabet="ab", min_size=1, max_size=9).map(lambda text: "".join(c * 13 for c in text)),
)
SLOTS = st.integers(0, 3)


class IndexMachine(RuleBasedStateMachine):
    """Any order of events leaves the index with exactly what the naive model holds."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ApproximateIndex(max_keys=150)
        self.naive = Naive(max_keys=150)
        self.generations = dict.fromkeys(range(4), 0)
        self.touches: list[tuple[Touch, int, int, list[str]]] = []
        self.asked: set[str] = {"a"}

    @rule(slot=SLOTS, text=TEXTS, capacity=st.integers(1, 14) | st.integers(1, 300))
    def record(self, slot: int, text: str, capacity: int) -> None:
        touch = self.index.record(slot, self.generations[slot], chain(text), capacity)
        stamp, believed, kept = self.naive.record(slot, text, capacity)
        assert touch.believed == believed
        self.touches.append((touch, stamp, believed, kept))
        self.asked.add(text)

    @precondition(lambda self: self.touches)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        touch, stamp, believed, kept = data.draw(st.sampled_from(self.touches))
        slot, alive = touch.slot, self.generations[touch.slot] == touch.generation
        what = data.draw(st.sampled_from(["confirm", "retract", "forget"]))
        if what == "confirm":
            self.index.confirm(touch)
        elif what == "retract":
            self.index.retract(touch)
            if alive:
                self.naive.retract(slot, stamp, believed, kept)
        else:
            self.index.forget_older(touch)
            if alive:
                self.naive.forget(slot, touch.before)

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        self.index.remove(slot)
        self.naive.slots.pop(slot, None)
        self.generations[slot] += 1

    @rule()
    def compact(self) -> None:
        for holding in self.index._holdings.values():
            approximate_index._compact(holding)

    @invariant()
    def agrees(self) -> None:
        assert len(self.index) == sum(self.naive.blocks(held) for held in self.naive.slots.values())
        for text in self.asked:
            assert matches(self.index, text, 4) == [self.naive.match(slot, text) for slot in range(4)]

    @invariant()
    def holds_no_block_without_the_blocks_before_it(self) -> None:
        for held in self.naive.slots.values():
            assert all(len(prefix) == 1 or self.naive.parent(prefix) in held for prefix in held)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=40)
