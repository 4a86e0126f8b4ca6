"""Lengths of patterns, and many patterns over one text."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.guardrails import Patterns
from dataplane.errors import ConfigError
from ipp.guardrails import scanning
from ipp.guardrails.pattern_length import greatest_length
from ipp.guardrails.rules.patterns import PatternRule
from ipp.guardrails.scanning import Item, Scanner
from tests.support.guardrail_rules import found, made


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("abc", 3),
        ("a|bcd|", 3),
        ("(a|b){3}c?", 4),
        (r"\bfoo\b$", 3),
        ("a*", None),
        ("a{2,}", None),
        ("a{2,5}x{3}", 8),
        (r"[]a]\]", 2),
        (r"[[:alpha:]]{2}\pN\p{Lu}\x{41}\x41\101", 7),
        (r"(?i)ab(?:c)(?P<n>d)(?i:e)", 5),
        (r"\Qa.b\E", 3),
        (r"\Qab\E*", None),
        (r"\Qa\E{3}", 3),
        ("a{b", 3),
        ("(?:a{2}){3}", 6),
        ("((a+)|b){0}", 0),
        ("(?s).{1,1000}", 1000),
        ("a{2}?", 2),
        ("(a?)*", None),
        (r"[^\]]{2}", 2),
    ],
)
def test_says_how_much_a_pattern_matches_at_most(pattern: str, length: int | None):
    re2.compile(pattern)
    assert greatest_length(pattern) == length


PARTS = st.sampled_from(["a", "b", "[ab]", ".", "(?:ab|b)", r"\w", "^", r"\b"])
REPEATS = st.sampled_from(["", "?", "{2}", "{1,3}", "{0,2}"])


@given(
    st.lists(st.tuples(PARTS, REPEATS), min_size=1, max_size=6),
    st.text(alphabet="ab c", max_size=60),
)
def test_no_match_is_longer_than_the_greatest_length(parts: list[tuple[str, str]], text: str):
    pattern = "".join(part + ("" if part in {"^", r"\b"} else repeat) for part, repeat in parts)
    length = greatest_length(pattern)
    assert length is not None
    assert all(match.end() - match.start() <= length for match in re2.compile(pattern).finditer(text))


def test_the_leftmost_stands_then_the_longer_then_the_first():
    scanner = Scanner([Item("ab", "ab"), Item("abc", "abc"), Item("cd", "cd"), Item("again", "abc")])
    assert [(m.start, m.end, m.kind) for m in scanner.find("abcd cd")] == [(0, 3, "abc"), (5, 7, "cd")]


def test_what_a_check_refuses_hides_nothing_that_begins_inside_it():
    scanner = Scanner([Item("even", r"\d{2}", lambda raw, _, end: end if raw[end - 1] % 2 == 0 else -1)])
    assert [(m.start, m.end) for m in scanner.find("134")] == [(1, 3)]


def test_places_are_code_points_whatever_the_text():
    scanner = Scanner([Item("x", "x+")])
    assert [(m.start, m.end) for m in scanner.find("é爆\U0001f600x\ud800xx")] == [(3, 4), (5, 7)]


@pytest.mark.parametrize("memory", [1 << 8, 1 << 15])
def test_patterns_too_many_for_one_pass_are_found_one_by_one(monkeypatch: pytest.MonkeyPatch, memory: int):
    monkeypatch.setattr(scanning, "MAX_SET_MEMORY", memory)
    scanner = Scanner([Item(str(k), rf"[ab]{{20}}{k}y") for k in range(5)])
    assert [m.kind for m in scanner.find("ab" * 10 + "1y " + "ba" * 10 + "4y")] == ["1", "4"]


def test_patterns_take_linear_time_where_backtracking_takes_for_ever():
    rule = made("patterns", {"patterns": [r"(?:x+x+)+y", r"(?:a|aa)+$", r"(?:.*a){12}z"]})
    assert found(rule, "x" * 20_000 + "b" + "a" * 20_000 + "!") == []


def test_for_streams_a_pattern_without_bound_is_refused_and_how_to_give_it_one_is_said():
    with pytest.raises(ConfigError) as refused:
        made("patterns", {"patterns": ["ab", r"\w+"]}, stages=["stream"])
    assert refused.value.path == "patterns[1]"
    assert refused.value.message == (
        "can match any number of characters, and streams hold back 512; give its repetitions upper bounds, "
        r"such as \w{1,64} for \w+, or leave stage stream out"
    )
    assert made("patterns", {"patterns": ["ab", r"\w{1,64}"]}, stages=["stream"]).longest == 64


def test_patterns_that_are_too_much_together_are_refused():
    with pytest.raises(ConfigError) as refused:
        made("patterns", {"patterns": [rf"a{{900}}{k}" for k in range(300)]})
    assert refused.value.path == "patterns"


def test_a_pattern_sees_what_stands_before_the_start_and_nothing_begins_there():
    rule = made("patterns", {"patterns": [r"\bab", "^c"]})
    assert [(m.start, m.end) for m in rule.find("xab ab", 1)] == [(4, 6)]
    assert rule.find("cc", 1) == []


@pytest.mark.parametrize("has_spans", [True, False], ids=["by spans", "by search"])
def test_a_pattern_is_located_whatever_the_library_offers(has_spans: bool, monkeypatch: pytest.MonkeyPatch):
    if not has_spans:
        monkeypatch.setattr(scanning, "_ANYWHERE", None)
    locate = scanning.locating(re2.compile("(é)?b+".encode()))
    raw = "aébbb b".encode()
    assert [locate(raw, at) for at in (0, 3, 6, 8)] == [(1, 6), (3, 6), (7, 8), None]


@pytest.mark.parametrize(
    ("pattern", "is_local"),
    [
        (r"\bfoo[^a-z]bar\b", True),
        (r"a.*b", True),
        (r"^foo", False),
        (r"(?m)x|^foo", False),
        (r"foo$", False),
        (r"foo\z", False),
        (r"\Afoo", False),
    ],
)
def test_a_pattern_that_asks_where_a_text_begins_or_ends_is_looked_for_text_by_text(
    pattern: str, is_local: bool
):
    rule = PatternRule(Patterns(patterns=["x", pattern]), streaming=False)
    assert rule.is_local is is_local
