"""Distributions in bounded memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipp.digest import Cluster, Digest


def digest_of(*values: float, compression: float = 200) -> Digest:
    digest = Digest(compression)
    for value in values:
        digest.add(value)
    return digest


def test_few_values_are_kept_exactly() -> None:
    digest = digest_of(3, 1, 2, 10)
    assert digest.clusters() == [Cluster(1, 1), Cluster(2, 1), Cluster(3, 1), Cluster(10, 1)]
    assert digest.split(0.75) == (2.0, 10.0)
    assert digest.split(0.5) == (1.5, 6.5)
    assert digest.split(0.625) == ((1 + 2 + 3 * 0.5) / 2.5, (3 * 0.5 + 10) / 1.5)
    assert digest_of(7).split(0.95) == (7.0, 7.0)


def test_nothing_has_no_means() -> None:
    with pytest.raises(ValueError, match="without values"):
        digest_of().split(0.5)


def test_many_values_take_bounded_room_and_keep_their_tails() -> None:
    rng = random.Random(5)
    values = [rng.lognormvariate(0, 1) for _ in range(20_000)]
    digest = digest_of(*values, compression=100)
    assert len(digest.clusters()) <= 100
    assert digest.count == 20_000
    assert sum(cluster.weight for cluster in digest.clusters()) == 20_000
    values.sort()
    body, tail = digest.split(0.95)
    assert body == pytest.approx(sum(values[:19_000]) / 19_000, rel=0.01)
    assert tail == pytest.approx(sum(values[19_000:]) / 1000, rel=0.01)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=400), st.floats(0.01, 0.99))
def test_both_means_lie_among_the_values_and_in_order(values: list[float], share: float) -> None:
    body, tail = digest_of(*values, compression=20).split(share)
    slack = 1e-6 * (1 + max(values))
    assert min(values) - slack <= body <= tail + slack
    assert tail <= max(values) + slack
    assert body * share + tail * (1 - share) == pytest.approx(sum(values) / len(values), rel=1e-6, abs=1e-6)
