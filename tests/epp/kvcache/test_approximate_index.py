"""The approximate index credits contiguous prefixes only, forgets tails first, and keeps within its caps."""

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
    """One block per character."""
    return block_keys("".join(c * 4 for c in text).encode(), 1, SEED, 1000)


def matches(index: ApproximateIndex, text: str, slots: int = 8) -> list[int]:
    """Blocks of the prompt that each slot holds."""
    per_slot = np.zeros(slots)
    index.add_matches(chain(text), per_slot)
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
    index = ApproximateIndex(max_blocks=12)
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

    def __init__(self) -> None:
        self.slots: dict[int, dict[str, int]] = {}
        self.clock = 0

    def match(self, slot: int, text: str) -> int:
        held = self.slots.get(slot, {})
        length = 0
        while length < len(text) and text[: length + 1] in held:
            length += 1
        return length

    def record(self, slot: int, text: str, capacity: int) -> tuple[int, int, str]:
        text = text[:capacity]
        held = self.slots.setdefault(slot, {})
        believed = self.match(slot, text)
        self.clock += 1
        held.update({text[: i + 1]: self.clock for i in range(len(text))})
        while len(held) > capacity:
            del held[min(held, key=lambda prefix: (held[prefix], -len(prefix)))]
        return self.clock, believed, text

    def retract(self, slot: int, stamp: int, believed: int, text: str) -> None:
        held = self.slots.get(slot, {})
        for i in range(believed, len(text)):
            if held.get(text[: i + 1]) == stamp:
                del held[text[: i + 1]]

    def forget(self, slot: int, before: int) -> None:
        held = self.slots.get(slot, {})
        for prefix in [p for p, stamp in held.items() if stamp <= before]:
            del held[prefix]


TEXTS = st.text(alphabet="ab", min_size=1, max_size=9)
SLOTS = st.integers(0, 3)


class IndexMachine(RuleBasedStateMachine):
    """Any order of events leaves the index with exactly what the naive model holds."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ApproximateIndex()
        self.naive = Naive()
        self.generations = dict.fromkeys(range(4), 0)
        self.touches: list[tuple[Touch, int, int, str]] = []
        self.asked: set[str] = {"a"}

    @rule(slot=SLOTS, text=TEXTS, capacity=st.integers(1, 14))
    def record(self, slot: int, text: str, capacity: int) -> None:
        touch = self.index.record(slot, self.generations[slot], chain(text), capacity)
        stamp, believed, kept = self.naive.record(slot, text, capacity)
        assert touch.believed == believed
        self.touches.append((touch, stamp, believed, kept))
        self.asked.add(text)

    @precondition(lambda self: self.touches)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        touch, stamp, believed, text = data.draw(st.sampled_from(self.touches))
        slot, alive = touch.slot, self.generations[touch.slot] == touch.generation
        what = data.draw(st.sampled_from(["confirm", "retract", "forget"]))
        if what == "confirm":
            self.index.confirm(touch)
        elif what == "retract":
            self.index.retract(touch)
            if alive:
                self.naive.retract(slot, stamp, believed, text)
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
        assert len(self.index) == sum(len(held) for held in self.naive.slots.values())
        for text in self.asked:
            assert matches(self.index, text, 4) == [self.naive.match(slot, text) for slot in range(4)]

    @invariant()
    def holds_no_block_without_the_blocks_before_it(self) -> None:
        for held in self.naive.slots.values():
            assert all(len(prefix) == 1 or prefix[:-1] in held for prefix in held)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
