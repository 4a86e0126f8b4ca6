"""weighted-random-picker: chances are proportional to scores."""

from collections import Counter

import numpy as np

from epp.plugins.pickers.weighted_random import WeightedRandomPicker
from tests.support.pool import make_plugin, make_request, make_table

REQUEST = make_request()
NOBODY = make_table(0).all()


def counts(totals: list[float], rounds: int = 4000) -> Counter[int]:
    """How often each position is picked first."""
    picker = make_plugin(WeightedRandomPicker, seed=5)
    return Counter(picker.pick(REQUEST, NOBODY, np.array(totals))[0] for _ in range(rounds))


def test_chances_are_proportional_to_scores():
    seen = counts([1.0, 0.0, 3.0])
    assert set(seen) == {0, 2}
    assert 900 < seen[0] < 1100


def test_all_zero_means_uniform():
    seen = counts([0.0, 0.0, 0.0, 0.0])
    assert all(900 < seen[position] < 1100 for position in range(4))


def test_a_zero_score_is_picked_only_after_the_positive_ones():
    picker = make_plugin(WeightedRandomPicker, None, {"maxNumOfEndpoints": 3}, seed=5)
    for _ in range(50):
        picked = list(picker.pick(REQUEST, NOBODY, np.array([0.0, 2.0, 0.0, 1.0])))
        assert set(picked[:2]) == {1, 3}
        assert picked[2] in {0, 2}


def test_several_are_distinct_and_at_most_all():
    picker = make_plugin(WeightedRandomPicker, None, {"maxNumOfEndpoints": 9}, seed=5)
    assert sorted(picker.pick(REQUEST, NOBODY, np.array([0.1, 0.2, 0.3]))) == [0, 1, 2]


def test_a_draw_at_the_very_end_stays_within_the_candidates():
    picker = make_plugin(WeightedRandomPicker)
    picker._rng = type("Edge", (), {"random": staticmethod(lambda: 1.0)})()
    assert list(picker.pick(REQUEST, NOBODY, np.array([0.5, 0.5, 0.0]))) == [1]
