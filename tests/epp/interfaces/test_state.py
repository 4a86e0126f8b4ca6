"""Dumps of plugin state are bounded and say what they leave out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataplane.plugin.state import MAX_DUMPED, StateDumper, highest, listing


class Dumping:
    """Shows its state."""

    def dump_state(self) -> object:
        return {}


def test_a_plugin_that_shows_its_state_is_recognised():
    assert isinstance(Dumping(), StateDumper)
    assert not isinstance(object(), StateDumper)


def test_a_listing_says_how_much_there_is():
    assert listing("endpoints", iter("ab"), 2) == {
        "totalEndpoints": 2,
        "maxEndpoints": MAX_DUMPED,
        "truncated": False,
        "leftOut": 0,
        "endpoints": ["a", "b"],
    }


def test_a_long_listing_is_cut_and_its_rest_not_even_read():
    items = iter(range(MAX_DUMPED + 5))
    shown = listing("someKeys", items, MAX_DUMPED + 5)
    assert shown["someKeys"] == list(range(MAX_DUMPED))
    assert (shown["totalSomeKeys"], shown["truncated"], shown["leftOut"]) == (MAX_DUMPED + 5, True, 5)
    assert next(items) == MAX_DUMPED


@given(st.lists(st.integers(0, 50), max_size=3 * MAX_DUMPED))
def test_highest_are_the_largest_positive_values_in_order(values: list[int]):
    slots = highest(np.array(values, dtype=float), np.arange(len(values)))
    assert [values[slot] for slot in slots] == sorted((v for v in values if v), reverse=True)[:MAX_DUMPED]
    assert len(set(slots)) == len(slots)
