"""Durations: read in Go's notation, refused otherwise, shown so that they can be read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.duration import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (0, 0.0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("1m30s", 90.0),
        ("36us", 36e-6),
        ("36µs", 36e-6),
        ("56ns", 56e-9),
        (".5s", 0.5),
        ("2h", 7200.0),
    ],
    ids=str,
)
def test_reads(text: object, seconds: float):
    assert Duration.parse(text).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", 5, 1.5, "-1s", "1x", "s", "1s2", "1s ", None, True, "25h", [1]], ids=repr
)
def test_refuses(text: object):
    with pytest.raises(ValueError, match=r"not a duration|longer than a day"):
        Duration.parse(text)


@given(st.floats(0, 86_400).map(lambda seconds: round(seconds, 9)))
def test_shown_duration_reads_as_itself(seconds: float):
    assert Duration.parse(str(Duration(seconds))).seconds == pytest.approx(seconds, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0s"), (90.0, "90s"), (0.25, "250ms"), (36e-6, "36us"), (56e-9, "56ns")],
    ids=str,
)
def test_shows_the_largest_unit_that_fits(seconds: float, shown: str):
    assert str(Duration(seconds)) == shown


def test_equal_durations_are_one_key():
    assert len({Duration(1.0), Duration(1.0), Duration(2.0)}) == 2
