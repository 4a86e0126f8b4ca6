"""Messages are taken out of their frames, whatever the chunks and however long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import BadRequestError
from epp.plugins import grpc_frames
from epp.plugins.grpc_frames import FrameReader, check_single_frame
from tests.support.parsers import bytewise, cut


def frame(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def read(*chunks: bytes) -> tuple[list[bytes], int]:
    """Messages of a response that came in these chunks, and how many frames there were."""
    reader = FrameReader()
    return [message for chunk in chunks for message in reader.feed(chunk)], reader.frames


def test_one_whole_frame_is_accepted():
    check_single_frame(frame(b""))
    check_single_frame(frame(b"abc"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the frame header is cut off (offset 0)"),
        (b"\0\0\0\0", "the frame header is cut off (offset 4)"),
        (frame(b"abc", 1), "the message is compressed (offset 0); send it with grpc-encoding identity"),
        (b'{"prompt": 1}', "the frame has the unknown flag 123 (offset 0)"),
        (frame(b"abc")[:-1], "the message is cut off (offset 7 of 8)"),
        (frame(b"abc") + frame(b""), "there is more than one message (offset 8)"),
    ],
)
def test_other_bodies_are_refused_with_their_place(body: bytes, reason: str):
    with pytest.raises(BadRequestError) as caught:
        check_single_frame(body)
    assert caught.value.message == f"invalid or unsupported gRPC payload: {reason}"


def test_compressed_and_overlong_messages_pass_unread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grpc_frames, "MAX_MESSAGE_BYTES", 3)
    body = frame(b"abcd") + frame(b"abc") + frame(b"zip", 1) + frame(b"x")
    assert read(body) == read(*bytewise(body)) == ([b"abc", b"x"], 4)


def test_an_overlong_message_is_not_kept():
    reader = FrameReader()
    assert list(reader.feed(b"\0\xff\xff\xff\xff")) == []
    for _ in range(100):
        assert list(reader.feed(b"y" * 62_000)) == []
        assert len(reader._data) == 0


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 1)), max_size=6),
    st.binary(max_size=7),
    st.lists(st.integers(0, 200), max_size=9),
)
def test_any_cut_gives_the_same(messages: list[tuple[bytes, int]], rest: bytes, cuts: list[int]):
    body = b"".join(frame(*message) for message in messages)
    assert read(*cut(body, cuts)) == ([m for m, flag in messages if not flag], len(messages))
    assert read(*cut(body + rest, cuts)) == read(body + rest)
