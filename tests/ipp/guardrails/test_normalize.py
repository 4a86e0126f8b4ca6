"""Folding, and the way back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipp.guardrails.normalize import classes, classes_of, fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Hello  World\r\n!", "hello world !"),
        ("ﬁne Straße", "fine strasse"),
        ("Ｆｕｌｌ", "full"),
        ("İstanbul ılık", "istanbul ilik"),
        ("e\u0301t\u0301", "et"),
        ("Ёлка й", "елка и"),
        ("が か\u3099", "が か\u3099"),
        ("क्षि", "क्षि"),
        ("a\u200b\u00ad\ufe0fb", "ab"),
        ("it’s – “so”", 'it\'s - "so"'),
        ("🅱🅾🇦", "boa"),
        ("\ud800x", "\ud800x"),
        ("", ""),
    ],
)
def test_folds_to_the_one_spelling(text: str, folded: str):
    assert fold(text).text() == folded


def test_with_case_letters_stay_large_and_the_rest_folds():
    assert fold("Ｈéllo\u200b  B", cased=True).text() == "Hello B"


@given(st.text() | st.text(alphabet="aßﬁ\u200b\u0301 \n\ud800é爆"))
def test_the_way_back_is_monotone_and_inside_the_text(text: str):
    found = fold(text)
    if found.offsets is None:
        assert len(found.codes) == len(text)
    else:
        assert len(found.offsets) == len(found.codes)
        assert bool((np.diff(found.offsets) >= 0).all())
        assert all(0 <= offset < len(text) for offset in found.offsets.tolist())


@given(st.text())
def test_folding_what_is_folded_changes_nothing_but_what_could_not_be_folded_at_once(text: str):
    once = fold(text).text()
    assert fold(fold(once).text()).text() == fold(once).text()


@given(st.text(alphabet=st.characters(max_codepoint=127)), st.booleans())
def test_ascii_folds_as_it_does_among_other_letters(text: str, cased: bool):
    alone, among = fold(text, cased=cased), fold(text + "\u4e00", cased=cased)
    assert alone.text() == among.text()[:-1]
    assert alone.classes.tolist() == among.classes.tolist()[:-1]
    size = len(alone.codes)
    places = range(size) if alone.offsets is None else alone.offsets.tolist()
    assert list(places) == (list(range(size)) if among.offsets is None else among.offsets.tolist()[:-1])
    assert classes_of(alone.codes).tolist() == classes()[alone.codes].tolist()
