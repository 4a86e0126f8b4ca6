"""What is found in a text does not depend on the pieces it comes in."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ipp.guardrails.arguments import MAX_RUN, ArgumentsFinder
from ipp.guardrails.finding import PlainFinder, Searcher, Searchers, applied
from ipp.guardrails.masking import Vault
from tests.support.guardrail_policies import Pattern

RULES = Searchers(
    [
        Searcher(Pattern("aa", 2), "mask", lambda match, part: f"[{part}]"),
        Searcher(Pattern("ab{1,3}a", 5), "mask", lambda match, part: '"'),
        Searcher(Pattern("bb", 2), "flag", lambda match, part: ""),
        Searcher(Pattern(r"\d\d", 2), "mask", lambda match, part: "#"),
    ]
)


def run(kind, pieces, rules=RULES):
    finder = kind(rules)
    frontiers = []
    for at, piece in enumerate(pieces):
        finder.feed(piece, at == len(pieces) - 1)
        frontiers.append(finder.frontier)
        if finder.blocked:
            break
    assert frontiers == sorted(frontiers)
    found = [(found.rule, found.start, found.end) for found in finder.found]
    return list(finder.regions), found, finder.frontier


@given(st.lists(st.text("ab1", max_size=6), min_size=1, max_size=12))
def test_plain_text(pieces):
    text = "".join(pieces)
    assert run(PlainFinder, pieces) == run(PlainFinder, [text])
    assert run(PlainFinder, pieces)[2] == len(text)


@given(
    st.lists(st.text('ab1"\\u0é{}: ,\n', max_size=6), min_size=1, max_size=12),
    st.sampled_from(["", "{", '"']),
)
def test_text_of_arguments_even_when_they_are_broken(pieces, begin):
    pieces = [begin, *pieces]
    regions, found, frontier = run(ArgumentsFinder, pieces)
    assert (regions, sorted(found), frontier) == (lambda r, f, e: (r, sorted(f), e))(
        *run(ArgumentsFinder, ["".join(pieces)])
    )


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ('{"x":"aa"}', '{"x":"[aa]"}'),
        ('{"x":"a\\u0061"}', '{"x":"[aa]"}'),
        ('{"aa":[11, 2, true]}', '{"[aa]":["#", 2, true]}'),
        ('{"x":"a","y":"a"}', '{"x":"a","y":"a"}'),
        ('{"x":"\\naba"}', '{"x":"\\n\\""}'),
        ('{"n": -1123.5e11 }', '{"n": "-##.5e#" }'),
        ("plain aa", "plain [aa]"),
        ("  aa", "  [aa]"),
        ('"aa"', '"[aa]"'),
        ('{"x":"\\ud83d\\ude00aa"}', '{"x":"\\ud83d\\ude00[aa]"}'),
        ('{"x":"aa', '{"x":"[aa]'),
    ],
)
def test_masked_arguments_stay_json(text, new):
    regions, _, _ = run(ArgumentsFinder, [text])
    assert applied(text, regions) == new
    assert [run(ArgumentsFinder, list(text))[0]] == [regions]


def test_overlapping_finds_cover_every_code_point_that_one_of_them_covers():
    rules = Searchers(
        [
            Searcher(Pattern("abc", 3), "mask", lambda match, part: "<1>"),
            Searcher(Pattern("cde", 3), "mask", lambda match, part: f"<2 {part}>"),
            Searcher(Pattern("ab", 2), "mask", lambda match, part: "<3>"),
        ]
    )
    regions, found, _ = run(PlainFinder, ["xabcdex"], rules)
    assert applied("xabcdex", regions) == "x<1><2 de>x"
    assert found == [(0, 1, 4), (2, 1, 3), (1, 3, 6)]


def test_what_is_held_back_is_as_much_as_the_longest_find():
    finder = PlainFinder(RULES)
    finder.feed("c" * 20, False)
    assert finder.frontier == 15


def test_a_find_that_blocks_ends_the_text_before_it():
    rules = Searchers(
        [
            Searcher(Pattern("stop", 4), "block", lambda match, part: ""),
            Searcher(Pattern("xs", 2), "mask", lambda match, part: "*"),
        ]
    )
    finder = PlainFinder(rules)
    finder.feed("go on xstop here", False)
    assert finder.frontier == 6
    assert finder.blocked is not None
    assert (finder.blocked.start, finder.blocked.end) == (7, 11)
    assert finder.regions == []


def test_placeholders_are_turned_back_and_are_nobodys_find():
    vault = Vault()
    assert vault.placeholder("email", "me@x") == "<EMAIL_1>"
    rules = Searchers([Searcher(Pattern("[A-Z]{5}", 5), "block", lambda match, part: "")], vault)
    text = "to <EMAIL_1>, <EMAIL_2 or <email_1>"
    regions, found, _ = run(PlainFinder, list(text.replace("<EMAIL_2", "")), rules)
    assert applied(text.replace("<EMAIL_2", ""), regions) == "to me@x,  or <email_1>"
    assert found == []
    assert run(PlainFinder, list(text), rules)[1] == [(0, 15, 20)]


def test_placeholders_in_arguments_are_turned_back_with_escapes():
    vault = Vault()
    vault.placeholder("email", 'me"\\@x')
    text = json.dumps({"to": "<EMAIL_1>", "cc": "\\u003cEMAIL_1>"}).replace("\\\\u", "\\u")
    regions, _, _ = run(ArgumentsFinder, list(text), Searchers([], vault))
    assert json.loads(applied(text, regions)) == {"to": 'me"\\@x', "cc": 'me"\\@x'}


def test_half_characters_do_not_reach_rules():
    regions, found, _ = run(PlainFinder, ["\ud83d", "aa\ude00"])
    assert applied("\ud83daa\ude00", regions) == "\ud83d[aa]\ude00"
    assert found == [(0, 1, 3)]


@pytest.mark.parametrize("filler", [" ", "\n", "1 ", "x"])
def test_arguments_without_end_are_not_gone_over_again_and_again(filler):
    finder = ArgumentsFinder(RULES)
    finder.feed('{"a": ', False)
    for _ in range(3 * MAX_RUN):
        finder.feed(filler, False)
        finder.regions, finder.found = [], []
    assert len(finder._buffer) <= MAX_RUN
    assert finder.frontier >= 2 * MAX_RUN


def test_a_run_is_cut_at_the_same_place_whatever_the_pieces():
    text = '{"a": ' + "1" * (MAX_RUN + 3) + "}"
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert run(ArgumentsFinder, pieces) == run(ArgumentsFinder, [text])
    spaces = " " * (MAX_RUN + 1) + "aa"
    assert run(ArgumentsFinder, list(spaces)) == run(ArgumentsFinder, [spaces])
