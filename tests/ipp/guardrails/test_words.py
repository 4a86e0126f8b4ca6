"""Words seen through disguises, and where in the text as it was written they are."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from ipp.guardrails import words
from ipp.guardrails.words import AT_ONCE, MAX_HIDDEN, MAX_SHORT, WordFinder

WORDS = ["kill", "secret plan", "pot", "fail", "ass", "бомба", "爆弾", "Straße"]


def found(text: str, **how: bool) -> list[str]:
    return sorted(text[hit.start : hit.end] for hit in WordFinder(WORDS, **how).find(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KILL it", ["KILL"]),
        ("k\u200bi\u2060ll", ["k\u200bi\u2060ll"]),
        ("ｋｉｌｌ", ["ｋｉｌｌ"]),
        ("kíl\u0301l\u0301!", ["kíl\u0301l\u0301"]),
        ("the secret\n\t plan", ["secret\n\t plan"]),
        ("k1ll", ["k1ll"]),
        ("f@1l", ["f@1l"]),
        ("k\u0456ll", ["k\u0456ll"]),
        ("k-i-l-l", ["k-i-l-l"]),
        ("s e c r e t   p l a n", ["s e c r e t   p l a n"]),
        ("STRASSE", ["STRASSE"]),
        ("彼は爆弾を", ["爆弾"]),
        ("".join(chr(0xE0000 + ord(c)) for c in "kill"), ["".join(chr(0xE0000 + ord(c)) for c in "kill")]),
    ],
    ids=lambda value: None,
)
def test_sees_a_word_through_its_disguise(text: str, expected: list[str]):
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    ["skill", "killer", "A55", "\u0440\u043e\u0442", "fall", "kil!", "kills", "secretplan", "masse", ""],
)
def test_leaves_alone_what_only_resembles_a_word(text: str):
    assert found(text) == []


def test_words_inside_longer_ones_count_when_parts_do():
    assert found("skills", whole=False) == ["kill"]


def test_words_with_case_are_found_as_they_are_written_and_not_in_disguise():
    finder = WordFinder(["Kill"], cased=True)
    assert [(hit.start, hit.end) for hit in finder.find("kill Kill k1ll K\u200bill")] == [(5, 9), (15, 20)]


def test_what_base64_says_spans_the_groups_that_hold_it():
    token = base64.b64encode(b"please kill it now").decode()
    assert found(f"run {token}!") == [token[8:16]]


def test_base64_within_base64_is_seen_and_a_third_layer_is_not():
    once = base64.b64encode(b"please kill the whole thing now").decode()
    twice = base64.b64encode(once.encode()).decode()
    thrice = base64.b64encode(twice.encode()).decode()
    assert [len(found(text)) for text in (once, twice, thrice)] == [1, 1, 0]


def test_a_bounded_finder_looks_through_so_many_hidden_characters_and_no_base64():
    finder = WordFinder(["kill"], bounded=True)
    within, beyond = ("k" + "\u200b" * count + "ill" for count in (60, MAX_HIDDEN + 61))
    token = base64.b64encode(b"please kill it now").decode()
    assert finder.longest == 4 + MAX_HIDDEN
    assert [len(finder.find(text)) for text in (within, beyond, token)] == [1, 0, 0]


ASCII = st.lists(
    st.sampled_from(
        ["kill", "k1ll", "k i l l", "secret", " ", "plan", "s", "fail", "!", "`", "\n", "a", "9", "\x7f", "_"]
    )
)


@given(pieces=ASCII, bounded=st.booleans(), cased=st.booleans())
def test_short_text_is_searched_to_the_same_effect_as_long_text(
    pieces: list[str], bounded: bool, cased: bool
):
    text = "".join(pieces)
    finder = WordFinder(WORDS, bounded=bounded, cased=cased)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "MAX_SHORT", -1)
        long = sorted(finder.find(text))
    assert sorted(finder.find(text)) == long


def test_what_stands_before_the_start_tells_whether_a_word_begins_there():
    finder = WordFinder(["kill"])
    assert finder.find("skill", 1) == []
    assert [(hit.start, hit.end) for hit in finder.find("kill kill", 1)] == [(5, 9)]


def test_the_first_of_words_that_fold_to_the_same_is_reported():
    finder = WordFinder(["Été", "ete", "other"])
    assert finder.reported == [0, 0, 2]
    assert [hit.word for hit in finder.find("ETE")] == [0]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("\u200b\u200d", "holds nothing that can be seen"),
        ("a\U0010ffff", "holds U+10FFFF, which is no character"),
    ],
)
def test_a_word_that_nothing_can_be_is_refused_with_its_place(word: str, message: str):
    with pytest.raises(ConfigError) as refused:
        WordFinder(["fine", word])
    assert (refused.value.path, refused.value.message) == ("words[1]", message)


@given(st.lists(st.sampled_from([*WORDS, "k1ll", "k i l l", "é", " ", "x" * 9]), max_size=8).map(" ".join))
def test_a_text_that_is_gone_over_piece_by_piece_gives_the_same(text: str):
    finder, long = WordFinder(WORDS), text + " " * (MAX_SHORT + 1)
    whole = finder.find(long)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "AT_ONCE", 3)
        assert finder.find(long) == whole


@given(st.text(min_size=9, max_size=20), st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]))
def test_what_is_left_out_of_base64_says_no_text(text: str, encode: Callable[[bytes], bytes]):
    token = encode(text.encode()).rstrip(b"=")
    assert token[0] not in words._NO_TEXT
    assert [said for _, _, said in words.encoded(token.decode())] == [
        said for said in [words.decoded_text(token)] if said is not None
    ]


@pytest.mark.parametrize("first", sorted(words._NO_TEXT))
def test_base64_that_begins_with_these_is_never_text(first: int):
    for second in b"Aa0+/9zZ":
        assert words.decoded_text(bytes([first, second]) + b"AAAAAAAAAAAA") is None


@pytest.mark.parametrize("first", ["\U0001f600", "\u0394", "\u00e9", "x"])
def test_long_texts_of_any_width_are_gone_over_piece_by_piece(first: str) -> None:
    """Text whose pieces have characters of different widths, and words on every side of where pieces end."""
    finder = WordFinder(["forbidden"])
    for shift in range(12):
        text = first + "-" * (AT_ONCE - 6 - shift) + " forbidden " + "-" * AT_ONCE + " \u0416 forbidden"
        assert [text[match.start : match.end] for match in finder.find(text)] == ["forbidden"] * 2
