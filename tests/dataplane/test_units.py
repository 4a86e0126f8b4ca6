"""Durations and quantities: what is read, and how refusals help."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.units import parse_duration, parse_quantity


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("50ms", 0.05),
        ("2s", 2.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        ("250\u00b5s", 0.00025),
        ("250\u03bcs", 0.00025),
        ("-2s", -2.0),
        ("+2s", 2.0),
        ("0s", 0.0),
    ],
)
def test_reads_go_durations(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5sec", "1s2", "--1s", "-", "five", "1d", "\u0661s1"])
def test_refuses_other_durations_and_shows_the_notation(text: str):
    with pytest.raises(ValueError, match=r"is not a duration; write a number and a unit, such as 50ms"):
        parse_duration(text)


def test_refuses_a_duration_that_no_timer_could_hold():
    with pytest.raises(ValueError, match="'999999999999h' is longer than ten years"):
        parse_duration("999999999999h")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("100", 100),
        ("1k", 1000),
        ("500M", 500_000_000),
        ("16Mi", 16 << 20),
        ("16MiB", 16 << 20),
        ("10MB", 10_000_000),
        ("1.5Gi", 3 << 29),
        ("1500m", 2),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("4B", 4),
    ],
)
def test_reads_kubernetes_quantities(text: str, value: int):
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "-1", "16mi", "1 Gi", "Mi", "1K", "0x10", "1e", "nan"])
def test_refuses_other_quantities_and_shows_the_notation(text: str):
    with pytest.raises(ValueError, match=r"is not a quantity; write a number with an optional suffix"):
        parse_quantity(text)


def test_refuses_a_quantity_beyond_64_bits():
    with pytest.raises(ValueError, match=r"'8Ei' is more than 2\^63-1"):
        parse_quantity("8Ei")


@pytest.mark.parametrize("read", [parse_duration, parse_quantity])
@given(text=st.text(max_size=20))
def test_any_text_is_read_or_refused_with_value_error(read: Callable[[str], float], text: str):
    with contextlib.suppress(ValueError):
        assert abs(read(text)) < 1 << 63
