"""random-picker: scores do not matter."""

from collections import Counter

import numpy as np

from epp.plugins.pickers.random import RandomPicker
from tests.support.pool import make_plugin, make_request, make_table

REQUEST = make_request()
NOBODY = make_table(0).all()


def test_everyone_is_picked_equally_often():
    picker = make_plugin(RandomPicker, seed=3)
    totals = np.array([9.0, 0.0, 0.0, 0.0])
    counts = Counter(picker.pick(REQUEST, NOBODY, totals)[0] for _ in range(4000))
    assert set(counts) == {0, 1, 2, 3}
    assert all(900 < count < 1100 for count in counts.values())


def test_several_are_distinct_and_at_most_all():
    picker = make_plugin(RandomPicker, None, {"maxNumOfEndpoints": 3}, seed=3)
    assert all(len(set(picker.pick(REQUEST, NOBODY, np.zeros(5)))) == 3 for _ in range(20))
    assert sorted(picker.pick(REQUEST, NOBODY, np.zeros(2))) == [0, 1]


def test_fewer_than_one_means_one():
    picker = make_plugin(RandomPicker, None, {"maxNumOfEndpoints": 0})
    assert list(picker.pick(REQUEST, NOBODY, np.zeros(1))) == [0]
