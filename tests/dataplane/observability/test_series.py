"""Single series out of pages that move, repeat, lie and end in the middle."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dataplane.observability.series import (
    ABSENT_PAGES,
    MAX_LEARNED_BYTES,
    MAX_LINE,
    MAX_SERIES_OF_A_NAME,
    Series,
    SeriesSpec,
)


def series(spec: str, **options: bool) -> Series:
    """A reader."""
    return Series(SeriesSpec.parse(spec), **options)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("vllm:num_requests_waiting", SeriesSpec("vllm:num_requests_waiting")),
        (" a { } ", SeriesSpec("a")),
        ("a{}", SeriesSpec("a")),
        ("a{b=c}", SeriesSpec("a", (("b", "c"),))),
        ('a{b="c d", e = f ,}', SeriesSpec("a", (("b", "c d"), ("e", "f")))),
        ("a{b=}", SeriesSpec("a", (("b", ""),))),
    ],
)
def test_specs_are_read(text: str, spec: SeriesSpec):
    assert SeriesSpec.parse(text) == spec


@pytest.mark.parametrize(
    "text", ["", "{a=b}", "1a", "a b", "a{b=c", "a{b=c}}", "a{=c}", "a{b}", "a{b=c d=e}x"]
)
def test_other_specs_are_refused_with_the_notation(text: str):
    with pytest.raises(ValueError, match=r"write (name or name\{label=value,\.\.\.\}|label=value)"):
        SeriesSpec.parse(text)


def test_a_spec_is_shown_as_it_is_written():
    assert str(SeriesSpec.parse("a{b=c,d=e}")) == "a{b=c,d=e}"
    assert str(SeriesSpec.parse("a")) == "a"


@pytest.mark.parametrize(
    ("page", "value"),
    [
        (b"m 1\n", 1.0),
        (b"m 1", 1.0),
        (b"m{} 2\n", 2.0),
        (b'm{a="b"} 3\n', 3.0),
        (b'm{a="b",} 3\n', 3.0),
        (b'm{ a = "b" , c="d" }   3\n', 3.0),
        (b'# HELP m m 9\n# TYPE m gauge\nm{a="b"} 4.5\n', 4.5),
        (b"m_total 7\nmm 8\nm 5\nm_x 9\n", 5.0),
        (b"m 1e3\n", 1000.0),
        (b"m +1.5E-2\n", 0.015),
        (b"m 6 1700000000000\n", 6.0),
        (b'm{a="b"} 6 # {trace="x}"} 0.5\n', 6.0),
        (b'm{a="}"} 7\n', 7.0),
        (b'm{a="} 9"} 7\n', 7.0),
        (b'm{a="\\"} 9"} 7\n', 7.0),
        (b'm{a="\xff"} 7\n', 7.0),
        (b"m NaN\n", None),
        (b"m +Inf\n", None),
        (b"m\n", None),
        (b"m \n", None),
        (b"m x\n", None),
        (b"m 1 2 3\n", None),
        (b"m 1 x\n", None),
        (b'm{a="b 1\n', None),
        (b"m{a=b} 1\n", None),
        (b'm{a="b"}} 1\n', None),
        (b"# m 1\n", None),
        (b"", None),
        (b"\n", None),
        (b" m 1\n", None),
    ],
)
def test_a_line_is_read_as_the_format_says(page: bytes, value: float | None):
    reader = series("m")
    assert reader.read(page) == value
    assert reader.read(page) == value
    assert reader.read(b"# a line before\n" + page + b"\nafter 1\n") == value


def test_labels_are_found_by_name_in_any_order():
    page = b'm{x="1",kind="a"} 1\nm{kind="b",x="1"} 2\nm{x="2",kind="c"} 3\n'
    assert [series(f"m{{kind={kind}}}").read(page) for kind in "abcd"] == [1.0, 2.0, 3.0, None]
    assert series("m{x=1,kind=b}").read(page) == 2.0


def test_escapes_in_labels_are_undone():
    reader = series("m")
    reader.read(b'm{a="q\\"b\\\\n\\n\\x",b=""} 1\n')
    assert reader.labels == {"a": 'q"b\\n\nx', "b": ""}


def test_labels_are_the_same_object_while_they_are_the_same():
    reader = series("m")
    reader.read(b'm{a="1"} 1\n')
    first = reader.labels
    reader.read(b'# longer page\nm{a="1"} 2\n')
    assert reader.labels is first
    reader.read(b'm{a="2"} 2\n')
    assert reader.labels == {"a": "2"}


def test_the_first_of_several_series_counts_unless_one_is_newer():
    assert series("m").read(b'm{e="0"} 1\nm{e="1"} 2\n') == 1.0
    assert series("m").read(b'm{e="0"} 1 100\nm{e="1"} 2 300\nm{e="2"} 3 300\nm{e="3"} 4 200\n') == 2.0
    assert series("m").read(b'm{e="0"} 1\nm{e="1"} 2 1\n') == 2.0


def test_the_newest_info_series_is_that_with_the_largest_value():
    reader = series("m", newest_by_value=True)
    page = b'm{a="old"} 1.7e9\nm{a="new"} 1.8e9\nm{a="same"} 1.8e9\nm{a="older"} 1.6e9\n'
    assert reader.read(page) == 1.8e9
    assert reader.labels == {"a": "new"}


def test_a_series_that_appears_later_is_noticed_though_the_first_stood_alone():
    reader = series("m", newest_by_value=True)
    assert reader.read(b'# TYPE m gauge\nm{a="1"} 1\n') == 1.0
    assert reader.read(b'# TYPE m gauge\nm{a="1"} 1\n') == 1.0
    assert reader.read(b'# TYPE m gauge\nm{a="1"} 1\nm{a="2"} 2\n') == 2.0
    assert reader.read(b'# TYPE m gauge\nm{a="0"} 3\nm{a="1"} 1\n') == 3.0


def test_a_remembered_position_is_not_believed():
    reader = series("m")
    assert reader.read(b'# TYPE m gauge\nm{a="1"} 1\n') == 1.0
    assert reader.read(b'# TYPE n gauge\nn{a="1"} 9\n') is None
    assert reader.read(b'# TYPE m gauge\nm_x{a="1"} 9\n') is None
    assert reader.read(b'# TYPE m gauge\nm_x{a="1"} 9\nm{a="1"} 2\n') == 2.0
    assert reader.read(b"x" * 5000 + b'\n# TYPE m gauge\nm{a="1"} 3\n') == 3.0
    assert reader.read(b'# TYPE m gauge\nm{a="1"} 4') == 4.0


def test_an_absent_optional_series_is_looked_for_every_few_pages():
    reader = series("m", optional=True)
    assert reader.read(b"n 1\n") is None
    assert not reader.skipped
    reads = [reader.read(b"m 1\n") for _ in range(ABSENT_PAGES)]
    assert reads == [None] * (ABSENT_PAGES - 1) + [1.0]
    assert not reader.skipped


def test_a_missing_series_that_is_not_optional_is_looked_for_in_every_page():
    reader = series("m")
    assert reader.read(b"n 1\n") is None
    assert reader.read(b"m 1\n") == 1.0


def test_series_of_a_name_past_the_cap_are_ignored():
    page = b"".join(b'm{a="%d"} %d\n' % (i, i) for i in range(MAX_SERIES_OF_A_NAME + 1))
    reader = series("m", newest_by_value=True)
    assert max(filter(None, [reader.read(page) for _ in range(4)])) == MAX_SERIES_OF_A_NAME - 1


def test_many_new_labels_are_learned_over_several_pages():
    size = MAX_LEARNED_BYTES // 3
    page = b"".join(b'm{a="%d",b="%b"} %d\n' % (i, b"x" * 2000, i) for i in range(size // 100))
    reader = series("m", newest_by_value=True)
    first = reader.read(page)
    found = [reader.read(page) for _ in range(20)]
    assert first < found[0] < found[-1] == size // 100 - 1


def test_a_line_longer_than_the_cap_is_absent():
    fits = b'm{a="%b"} 1' % (b"x" * (MAX_LINE - len(b'{a=""} 1')))
    assert series("m").read(fits + b"\n") == 1.0
    assert series("m").read(fits.replace(b"} 1", b"x} 1") + b"\n") is None
    assert series("m").read(b'm{a="%b"} 1\nm{a="y"} 2\n' % (b"x" * MAX_LINE)) == 2.0


label_values = st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=12)


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, list[tuple[dict[str, str], float]]]:
    """A page with series of `m` among others, and what they say."""
    found: list[tuple[dict[str, str], float]] = []
    lines = ["# HELP m_other m 1", "m_other 1"] if draw(st.booleans()) else []
    if draw(st.booleans()):
        lines += ["# TYPE m gauge"]
    for index in range(draw(st.integers(0, 4))):
        labels = {"i": str(index), "v": draw(label_values)}
        value = draw(st.floats(allow_nan=False, allow_infinity=False))
        escaped = labels["v"].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'm{{v="{escaped}",i="{index}"}} {value!r}')
        found.append((labels, value))
    if draw(st.booleans()):
        lines += ["# TYPE m_z gauge", "m_z 3"]
    return "".join(f"{line}\n" for line in lines), found


@settings(max_examples=200)
@given(st.lists(pages(), min_size=1, max_size=5))
def test_a_reader_says_of_page_after_page_what_a_fresh_parser_says(sequence: list[Any]):
    reader, second = series("m"), series("m{i=1}")
    for text, found in sequence:
        parsed = [s for f in text_string_to_metric_families(text) for s in f.samples if s.name == "m"]
        assert [(s.labels, s.value) for s in parsed] == found
        page = text.encode()
        assert reader.read(page) == (found[0][1] if found else None)
        if found:
            assert reader.labels == found[0][0]
        assert second.read(page) == (found[1][1] if len(found) > 1 else None)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_read_or_absent(first: bytes, second: bytes):
    reader = series("m{a=b}")
    for page in (b'# TYPE m gauge\nm{a="b"} 1\n' + first, b"\nm{" + second, b"m " + first, second):
        assert reader.read(page) is None or isinstance(reader.read(page), float)
