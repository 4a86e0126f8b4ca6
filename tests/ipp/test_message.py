"""The members of a request's body, and the model among them, whichever way it is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import RequestError
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from ipp.interfaces.message import RequestMessage, text_of


def message(body: bytes, *headers: tuple[str, str]) -> RequestMessage:
    return RequestMessage(HttpRequest(Headers.of(headers), body, None))


def by_members(body: bytes) -> str | None:
    """The model as the table of all members has it; None when the body is refused."""
    try:
        raw = message(body).members.get("model")
        return "" if raw is None else text_of(raw)
    except RequestError:
        return None


def at_once(body: bytes) -> str | None:
    try:
        return message(body).model
    except RequestError:
        return None


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"a"}', "a"),
        (b'{"messages":[]}', ""),
        (b'{"model":null}', ""),
        (b'{"model":7}', "7"),
        (b'{"model":{"a":1}}', '{"a":1}'),
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"model":7,"model":"b"}', "b"),
        (b'{"model":"b","model":7}', "7"),
        (b'{"\\u006dodel":"b"}', "b"),
        (b'{"model":"a","\\u006dodel":"b"}', "b"),
        (b'{"model":"\\ud83d\\ude00"}', "\U0001f600"),
        (b'{"x":{"model":"in"},"model":"out"}', "out"),
        (b"[]", None),
        (b"{", None),
        (b'{"model":"a"} x', None),
        (b'{"model":"a"', None),
        (b'{"model":"\xff"}', None),
        (b"", None),
        (b"[" * 100_000, None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_model_is_what_the_last_member_of_that_name_says(body: bytes, model: str | None) -> None:
    assert at_once(body) == by_members(body) == model


@given(
    st.lists(st.tuples(st.sampled_from(["model", "Model", "m", "x"]), st.text() | st.integers()), max_size=4)
)
def test_both_ways_to_read_the_model_agree(members: list[tuple[str, str | int]]) -> None:
    text = ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in members)
    body = b"{%b}" % text.encode()
    assert at_once(body) == by_members(body)


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("", True),
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("text/plain", True),
        ("Multipart/Form-Data; boundary=x", False),
        (" audio/wav", False),
    ],
)
def test_uploads_need_not_be_json_and_an_object_is_read_whatever_it_is_called(
    content_type: str, is_json: bool
) -> None:
    found = message(b'{"model":"a"}', ("content-type", content_type))
    assert (found.is_json, found.model) == (True, "a")
    upload = message(b"RIFF", ("content-type", content_type))
    if is_json:
        with pytest.raises(RequestError):
            _ = upload.model
    else:
        assert (upload.is_json, upload.model) == (False, "")


def test_an_encoded_body_is_refused_unless_the_encoding_is_none() -> None:
    assert message(b'{"model":"a"}', ("content-encoding", "identity")).model == "a"
    with pytest.raises(RequestError, match="encoded as gzip"):
        _ = message(b'{"model":"a"}', ("content-encoding", "gzip")).model


def test_a_body_that_is_replaced_is_read_anew() -> None:
    found = message(b'{"model":"a"}')
    assert found.model == "a"
    found.set_member("model", "b")
    assert (found.model, found.body) == ("b", b'{"model":"b"}')
