"""Aligned tables."""

import pytest

from benchmarks.tables import number, render_table


def test_first_column_is_left_and_the_others_are_right():
    assert render_table(["name", "value"], [["a", "1"], ["longer", "1,234"]]) == (
        "name    value\n------  -----\na           1\nlonger  1,234\n"
    )


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under a header of 2"):
        render_table(["a", "b"], [["1"]])


@pytest.mark.parametrize(
    ("value", "digits", "text"), [(1234.56, 0, "1,235"), (1.005, 1, "1.0"), (None, 2, "-"), (0, 0, "0")]
)
def test_number(value: float | None, digits: int, text: str):
    assert number(value, digits) == text
