"""Responses however they are cut, framed or broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.datalayer.http_response import (
    INITIAL_BUFFER,
    MAX_BODY_BYTES,
    MAX_CHUNK_LINE_BYTES,
    MAX_HEADER_BYTES,
    RETAINED_BUFFER,
    ResponseReader,
    ScrapeError,
)

OK = b"HTTP/1.1 200 OK\r\n"


def feed(reader: ResponseReader, data: bytes, cuts: list[int] | None = None) -> bytes | None:
    """Give `data` to the reader in pieces that end at `cuts`; the body if it completes."""
    edges = sorted({cut % (len(data) + 1) for cut in cuts or []} | {len(data)})
    start, body = 0, None
    for edge in edges:
        while start < edge:
            space = reader.space()
            count = min(len(space), edge - start)
            space[:count] = data[start : start + count]
            body = reader.filled(count)
            start += count
            if body is not None:
                return body
    return body


def chunked(pieces: list[bytes], trailers: bytes = b"") -> bytes:
    """A chunked response of non-empty pieces."""
    lines = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + lines + b"0\r\n" + trailers + b"\r\n"


def sized(body: bytes, headers: bytes = b"") -> bytes:
    """A response with Content-Length."""
    return OK + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def failure(data: bytes) -> ScrapeError:
    """How reading `data` fails."""
    with pytest.raises(ScrapeError) as caught:
        feed(ResponseReader(), data)
    return caught.value


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=8))
def test_any_cut_of_a_sized_response_gives_its_body(body: bytes, cuts: list[int]):
    reader = ResponseReader()
    assert feed(reader, sized(body), cuts) == body
    assert reader.keep_alive


@given(st.lists(st.binary(max_size=60), max_size=6), st.lists(st.integers(0, 600), max_size=8))
def test_any_cut_of_a_chunked_response_gives_its_body(pieces: list[bytes], cuts: list[int]):
    reader = ResponseReader()
    assert feed(reader, chunked(pieces, b"X-Trailer: 1\r\n"), cuts) == b"".join(pieces)
    assert reader.keep_alive


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=8))
def test_a_body_without_length_lasts_until_the_connection_closes(body: bytes, cuts: list[int]):
    reader = ResponseReader()
    assert feed(reader, OK + b"\r\n" + body, cuts) is None
    assert reader.closed() == body
    assert not reader.keep_alive


def test_one_reader_serves_response_after_response():
    reader = ResponseReader()
    for body in (b"first", b"", b"x" * 3 * INITIAL_BUFFER, b"last"):
        reader.reset()
        assert feed(reader, sized(body)) == body


def test_a_buffer_grown_by_a_large_page_is_given_up():
    reader = ResponseReader()
    feed(reader, sized(b"x" * 2 * RETAINED_BUFFER))
    reader.reset()
    assert len(reader.space()) == INITIAL_BUFFER


def test_interim_responses_are_passed_over():
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    assert feed(ResponseReader(), interim + interim + sized(b"body")) == b"body"


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n", True),
    ],
)
def test_keep_alive_follows_version_and_connection_header(head: bytes, keeps: bool):
    reader = ResponseReader()
    assert feed(reader, head + b"content-LENGTH:  2  \r\n\r\nok") == b"ok"
    assert reader.keep_alive is keeps


def test_bytes_after_the_response_end_the_connection_but_not_the_response():
    reader = ResponseReader()
    assert feed(reader, sized(b"ok") + b"more") == b"ok"
    assert not reader.keep_alive


def test_repeated_equal_lengths_are_one_length():
    assert feed(ResponseReader(), OK + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\nok") == b"ok"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"\x15\x03\x01\x00\x02\x02",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        OK + b"Content-Length: -2\r\n\r\nok",
        OK + b"Content-Length: 0x2\r\n\r\nok",
        OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nok",
        OK + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * MAX_CHUNK_LINE_BYTES,
    ],
    ids=range(13),
)
def test_garbage_is_refused_with_the_way_out(data: bytes):
    error = failure(data)
    assert error.kind == "garbage"
    assert error.detail.startswith("the answer is not HTTP/1.1: b'")
    assert error.hint == "check scheme and port of the data source against the model server"


@pytest.mark.parametrize("status", [204, 301, 404, 503])
def test_another_status_is_refused_and_named(status: int):
    error = failure(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
    assert (error.kind, error.detail) == ("status", f"the server answers HTTP status {status}")


def test_an_unknown_transfer_encoding_is_refused():
    error = failure(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n")
    assert (error.kind, error.detail) == ("encoding", "transfer encoding 'gzip, chunked' is not understood")


def test_an_endless_header_is_refused_at_the_cap():
    just_below = OK + b"X: " + b"x" * (MAX_HEADER_BYTES - len(OK) - 3)
    reader = ResponseReader()
    assert feed(reader, just_below) is None
    with pytest.raises(ScrapeError) as caught:
        feed(reader, b"x")
    assert caught.value.kind == "header too large"


def test_endless_interim_responses_are_refused_at_the_cap():
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    assert failure(interim * (MAX_HEADER_BYTES // len(interim) + 2)).kind == "header too large"


def test_endless_trailers_are_refused_at_the_cap():
    assert failure(chunked([b"x"], b"X: y\r\n" * MAX_HEADER_BYTES)).kind == "header too large"


def test_a_header_of_blanks_costs_no_time():
    assert (
        feed(ResponseReader(), OK + b"Connection:" + b" " * 60_000 + b"x\r\nContent-Length: 0\r\n\r\n") == b""
    )


def test_a_body_at_the_cap_is_read_and_one_byte_more_is_refused():
    body = b"x" * MAX_BODY_BYTES
    assert feed(ResponseReader(), sized(body)) == body
    reader = ResponseReader()
    assert feed(reader, OK + b"\r\n" + body) is None
    assert len(reader.closed()) == MAX_BODY_BYTES
    assert failure(OK + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)).kind == "too large"
    assert failure(OK + b"\r\n" + body + b"x").kind == "too large"
    assert failure(chunked([body])).kind == "too large"


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 2", sized(b"body")[:-1], chunked([b"body"])[:-3]],
    ids=["nothing", "header", "sized", "chunked"],
)
def test_a_connection_closed_too_early_is_a_reset(data: bytes):
    reader = ResponseReader()
    feed(reader, data)
    with pytest.raises(ScrapeError) as caught:
        reader.closed()
    assert caught.value.kind == "reset"
    assert (
        caught.value.detail == f"the connection was closed after {len(data)} bytes of an unfinished response"
    )


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_end_in_a_body_an_error_or_waiting(data: bytes, cuts: list[int]):
    reader = ResponseReader()
    try:
        body = feed(reader, OK + data, cuts)
    except ScrapeError as error:
        assert error.kind in {"garbage", "status", "encoding", "too large"}  # noqa: PT017  # either end is right
    else:
        assert body is None or isinstance(body, bytes)
