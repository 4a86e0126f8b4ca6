"""Session ids are bounded, stay different, and keep no secret."""

from hypothesis import given
from hypothesis import strategies as st

from dataplane.headers import Headers
from epp.plugins.session_ids import MAX_SESSION_ID_BYTES, bounded, from_cookie, from_header


def test_ids_up_to_the_cap_stay_and_longer_ones_become_digests():
    assert bounded("a" * MAX_SESSION_ID_BYTES) == "a" * MAX_SESSION_ID_BYTES
    longer = bounded("a" * (MAX_SESSION_ID_BYTES + 1))
    assert longer.startswith("blake2b:")
    assert len(longer) == len("blake2b:") + 32
    assert longer != bounded("a" * MAX_SESSION_ID_BYTES + "b")
    assert bounded("ä" * (MAX_SESSION_ID_BYTES // 2 + 1)).startswith("blake2b:")


@given(st.binary(max_size=600))
def test_any_header_value_gives_a_bounded_id(value: bytes):
    session = from_header(Headers([("x-s", value)]), "x-s")
    assert len(session.encode("utf-8", "surrogateescape")) <= MAX_SESSION_ID_BYTES


def test_a_header_that_is_absent_or_blank_names_no_session():
    assert from_header(Headers.of([]), "x-s") == ""
    assert from_header(Headers.of([("x-s", "  ")]), "x-s") == ""
    assert from_header(Headers.of([("x-s", " one ")]), "x-s") == "one"


def test_a_cookie_is_found_in_any_cookie_header_and_given_as_a_digest():
    headers = Headers.of([("cookie", "a=1; b=2"), ("cookie", "sid=s3cret; c=a=b")])
    session = from_cookie(headers, "sid")
    assert session.startswith("blake2b:")
    assert "s3cret" not in session
    assert session == from_cookie(Headers.of([("cookie", "sid=s3cret")]), "sid")
    assert from_cookie(headers, "c") != from_cookie(headers, "b")
    assert from_cookie(headers, "si") == ""
    assert from_cookie(Headers.of([("cookie", "sid=; sid")]), "sid") == ""
