"""Plain-number metrics: what is counted where, and that nobody can make them grow without end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.observability.numbers import (
    MAX_LABEL_LENGTH,
    MAX_LABEL_VALUES,
    OTHER,
    Counter,
    Family,
    Gauge,
    Histogram,
    LabelCap,
    label_value,
)


def test_counter_and_gauge_add_up():
    counter, gauge = Counter(), Gauge()
    counter.inc()
    counter.inc(2.5)
    gauge.set(7)
    gauge.inc(3)
    gauge.inc(-1)
    assert (counter.value, gauge.value) == (3.5, 9)


def test_a_bucket_includes_its_upper_bound():
    histogram = Histogram((1, 2, 4))
    for value in (0, 1, 1.5, 2, 4, 4.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 1]
    assert (histogram.count, histogram.sum) == (6, 13.0)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_cumulative_counts_are_those_of_the_definition(values: list[float]):
    bounds = (-1.0, 0.0, 0.5, 100.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    cumulative = [sum(histogram.counts[: i + 1]) for i in range(len(bounds))]
    assert cumulative == [sum(v <= bound for v in values) for bound in bounds]
    assert histogram.count == len(values)


def test_same_label_values_give_the_same_child():
    family = Family("f", "help", ("a", "b"), "counter", Counter)
    family.child("1", "2").inc()
    family.child("1", "2").inc()
    assert {values: child.value for values, child in family.children.items()} == {("1", "2"): 2}


def test_wrong_number_of_label_values_is_a_programming_error():
    family = Family("f", "help", ("a", "b"), "counter", Counter)
    with pytest.raises(ValueError, match=r"f has labels \('a', 'b'\), got 1 values"):
        family.child("1")


def test_series_past_the_cap_are_counted_as_other():
    family = Family("f", "help", ("a", "b"), "counter", Counter, max_series=2)
    for value in ("1", "2", "3", "4", "1"):
        family.child(value, "x").inc()
    assert {values: child.value for values, child in family.children.items()} == {
        ("1", "x"): 2,
        ("2", "x"): 1,
        (OTHER, OTHER): 2,
    }


def test_discarded_series_make_room():
    family = Family("f", "help", ("a",), "counter", Counter, max_series=2)
    family.child("1").inc()
    family.child("2").inc()
    family.discard("1")
    family.discard("unknown")
    family.child("3").inc()
    assert set(family.children) == {("2",), ("3",)}


def test_label_cap_keeps_the_first_thousand_and_folds_the_rest():
    cap = LabelCap()
    kept = [cap.fold(f"model-{i}") for i in range(MAX_LABEL_VALUES)]
    assert kept == [f"model-{i}" for i in range(MAX_LABEL_VALUES)]
    assert cap.fold("one-more") == OTHER
    assert cap.fold("model-7") == "model-7"


def test_label_values_are_short_and_valid_utf8():
    assert label_value("x" * MAX_LABEL_LENGTH) == "x" * MAX_LABEL_LENGTH
    assert label_value("x" * (MAX_LABEL_LENGTH + 1)) == OTHER
    assert label_value("caf\u00e9") == "caf\u00e9"
    assert label_value("a\udcffb") == "a?b"


def test_values_that_are_too_long_take_no_place_under_the_cap():
    cap = LabelCap(limit=1)
    assert cap.fold("x" * (MAX_LABEL_LENGTH + 1)) == OTHER
    assert cap.fold("a") == "a"


def test_kept_label_values_are_never_folded_and_are_themselves_capped():
    cap = LabelCap(2)
    assert [cap.fold(value) for value in ("a", "b", "c")] == ["a", "b", "other"]
    cap.keep(["kept", "a", "c", "third"])
    assert [cap.fold(value) for value in ("kept", "c", "third", "late")] == ["kept", "c", "other", "other"]
    assert [cap.fold(value) for value in ("a", "b")] == ["a", "b"]


def test_kept_label_values_take_no_place_of_others():
    cap = LabelCap(2)
    cap.keep(["kept"])
    assert [cap.fold(value) for value in ("a", "b", "c", "kept")] == ["a", "b", "other", "kept"]
