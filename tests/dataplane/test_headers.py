"""The header table and the headers of one message."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane import headers as table
from dataplane.headers import (
    ALIASES,
    CONTROL_HEADERS,
    DESTINATION_ENDPOINT,
    FAIRNESS_ID,
    OBJECTIVE,
    SIDECAR_HEADERS,
    STRIPPED_UPSTREAM,
    Headers,
)

NAMES = st.sampled_from(["a", "b", "content-type", OBJECTIVE])
PAIRS = st.lists(st.tuples(NAMES, st.binary(max_size=8)), max_size=8)


# -- headers of one message -------------------------------------------------------------------------------


@given(PAIRS)
def test_headers_answer_the_first_value_and_keep_all(pairs: list[tuple[str, bytes]]):
    headers = Headers(pairs)
    assert list(headers) == pairs
    assert len(headers) == len(pairs)
    for name in ("a", "b", "content-type", "absent"):
        values = [value for key, value in pairs if key == name]
        assert headers.raw(name) == (values[0] if values else None)
        assert (name in headers) is bool(values)
        assert headers.get(name, "none").encode("utf-8", "surrogateescape") == (values or [b"none"])[0]


@given(PAIRS)
def test_any_value_survives_a_round_trip_as_text(pairs: list[tuple[str, bytes]]):
    headers = Headers(pairs)
    texts = [(name, value.decode("utf-8", "surrogateescape")) for name, value in headers]
    assert list(Headers.of(texts)) == pairs


def test_headers_of_text_have_lower_case_names():
    headers = Headers.of([("Content-Type", "application/json"), ("X-Raw", b"\xff")])
    assert list(headers) == [("content-type", b"application/json"), ("x-raw", b"\xff")]


def test_absent_header_is_the_default():
    headers = Headers(())
    assert headers.get("a") == ""
    assert headers.get("a", "b") == "b"
    assert headers.raw("a") is None
    assert len(headers) == 0


@pytest.mark.parametrize("name", ALIASES)
def test_control_header_is_read_under_both_names_and_the_new_one_wins(name: str):
    old = ALIASES[name]
    assert Headers.of([(old, "old")]).control(name) == "old"
    assert Headers.of([(old, "old"), (name, "new")]).control(name) == "new"
    assert Headers.of([(name, ""), (old, "old")]).control(name) == ""
    assert Headers.of([]).control(name) == ""


def test_present_names_are_found_once_each():
    headers = Headers.of([(OBJECTIVE, "a"), ("accept", "b"), (OBJECTIVE, "c"), (DESTINATION_ENDPOINT, "d")])
    assert sorted(headers.present(CONTROL_HEADERS)) == sorted([OBJECTIVE, DESTINATION_ENDPOINT])
    assert headers.present(SIDECAR_HEADERS) == []
    assert headers.present(frozenset()) == []


def test_headers_show_their_pairs():
    assert repr(Headers([("a", b"1")])) == "Headers([('a', b'1')])"


# -- the table --------------------------------------------------------------------------------------------


def test_all_names_are_lower_case_tokens():
    names = {value for key, value in vars(table).items() if key.isupper() and isinstance(value, str)}
    names |= set(ALIASES) | set(ALIASES.values()) | STRIPPED_UPSTREAM | table.SECRET_HEADERS
    allowed = set(string.ascii_lowercase + string.digits + "-._")
    assert {name for name in names if not name or set(name) - allowed} == set()


def test_everything_that_steers_the_picker_or_a_sidecar_is_stripped():
    assert STRIPPED_UPSTREAM == CONTROL_HEADERS | SIDECAR_HEADERS
    assert {DESTINATION_ENDPOINT, FAIRNESS_ID, ALIASES[FAIRNESS_ID]} <= STRIPPED_UPSTREAM
    assert set(ALIASES) | set(ALIASES.values()) <= CONTROL_HEADERS


def test_secrets_are_not_control_headers():
    assert table.SECRET_HEADERS.isdisjoint(STRIPPED_UPSTREAM | table.NEVER_REPEATED)
