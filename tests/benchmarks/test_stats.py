"""Percentiles, histograms, medians."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stats import Summary, histogram, median, percentile, ratio, summarize


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (10, 1), (11, 2), (50, 5), (90, 9), (99, 10), (100, 10)]
)
def test_percentile_is_the_nearest_rank(percent: float, expected: int):
    assert percentile(range(1, 11), percent) == expected


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 100))
def test_percentile_occurs_and_covers_its_share(samples: list[float], percent: float):
    ordered = sorted(samples)
    value = percentile(ordered, percent)
    assert value in samples
    assert sum(sample <= value for sample in samples) >= percent / 100 * len(samples) - 1e-6


def test_percentile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="percentile of nothing"):
        percentile([], 50)


def test_percent_outside_its_range_is_refused():
    with pytest.raises(ValueError, match=r"must be in 0\.\.100, got 101"):
        percentile([1.0], 101)


def test_summary_of_samples_in_any_order():
    assert summarize([3.0, 1.0, 2.0, 4.0]) == Summary(4, 2.5, 2.0, 4.0, 4.0, 4.0, 4.0)


def test_summary_of_nothing_is_zero():
    assert summarize([]) == Summary(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_histogram_counts_in_buckets_bounded_by_powers():
    assert histogram([1.0, 1.5, 2.0, 3.0, 4.0, 4.1], buckets_per_doubling=1) == [
        (1.0, 1),
        (2.0, 2),
        (4.0, 2),
        (8.0, 1),
    ]


def test_histogram_keeps_samples_of_zero():
    assert histogram([0.0, 0.0, 1.0]) == [(0.0, 2), (1.0, 1)]


@given(st.lists(st.floats(1e-3, 1e9)))
def test_histogram_loses_no_sample(samples: list[float]):
    assert sum(count for _, count in histogram(samples)) == len(samples)


@pytest.mark.parametrize(("values", "expected"), [([], 0.0), ([3.0], 3.0), ([9.0, 1.0, 2.0], 2.0)])
def test_median(values: list[float], expected: float):
    assert median(values) == expected


def test_ratio_needs_a_denominator():
    assert ratio(3.0, 4.0) == 0.75
    assert ratio(3.0, 0.0) is None
