"""max-score-picker: the best endpoint, and a fair lot among equals."""

from collections import Counter

import numpy as np
import pytest

from epp.plugins.pickers.max_score import MaxScorePicker
from tests.support.pool import make_plugin, make_request, make_table

REQUEST = make_request()


def pick(totals: list[float], count: int = 1, seed: int = 0) -> list[int]:
    """Positions picked for these totals."""
    picker = make_plugin(MaxScorePicker, None, {"maxNumOfEndpoints": count}, seed=seed)
    return list(picker.pick(REQUEST, make_table(0).all(), np.array(totals)))


@pytest.mark.parametrize("padding", [0, 200], ids=["few", "many"])
def test_the_best_is_picked(padding: int):
    assert pick([0.5, 2.0, 1.0] + [0.0] * padding) == [1]


@pytest.mark.parametrize("padding", [0, 200], ids=["few", "many"])
def test_ties_are_broken_uniformly(padding: int):
    picker = make_plugin(MaxScorePicker, seed=7)
    totals = np.array([2.0, 0.5, 2.0, 2.0] + [0.0] * padding)
    counts = Counter(picker.pick(REQUEST, make_table(0).all(), totals)[0] for _ in range(3000))
    assert set(counts) == {0, 2, 3}
    assert all(900 < count < 1100 for count in counts.values())


def test_one_candidate_is_picked_whatever_its_score():
    assert pick([0.0]) == [0]


def test_several_are_picked_best_first():
    assert pick([0.5, 2.0, 1.0, 0.1], 3) == [1, 2, 0]


def test_more_than_there_are_means_all():
    assert pick([0.5, 2.0], 5) == [1, 0]


def test_the_last_place_is_drawn_among_equals():
    seen = {tuple(pick([1.0, 1.0, 3.0, 1.0], 2, seed)) for seed in range(50)}
    assert seen == {(2, 0), (2, 1), (2, 3)}


@pytest.mark.parametrize("count", [0, -3])
def test_fewer_than_one_means_one(count: int):
    assert pick([0.5, 2.0], count) == [1]
