"""The frames that gRPC puts its messages into: a flag byte, four bytes of length, the message.

The flag tells that the message is compressed, which nothing here undoes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dataplane.errors import BadRequestError

FRAME_HEADER_BYTES: Final = 5
MAX_MESSAGE_BYTES: Final = 1 << 20
"""Longest message of a response that is collected; longer ones pass unread."""


def invalid(reason: object) -> BadRequestError:
    """The refusal of a payload."""
    return BadRequestError(f"invalid or unsupported gRPC payload: {reason}")


def check_single_frame(body: bytes) -> None:
    """``BadRequestError`` unless the body is one whole frame with a message that is not compressed."""
    if len(body) < FRAME_HEADER_BYTES:
        raise invalid(f"the frame header is cut off (offset {len(body)})")
    if body[0] == 1:
        raise invalid("the message is compressed (offset 0); send it with grpc-encoding identity")
    if body[0]:
        raise invalid(f"the frame has the unknown flag {body[0]} (offset 0)")
    expected = FRAME_HEADER_BYTES + int.from_bytes(body[1:FRAME_HEADER_BYTES], "big")
    if len(body) < expected:
        raise invalid(f"the message is cut off (offset {len(body)} of {expected})")
    if len(body) > expected:
        raise invalid(f"there is more than one message (offset {expected})")


class FrameReader:
    """Finds the messages of a response, whatever its chunks."""

    __slots__ = ("_data", "_skip", "frames")

    def __init__(self) -> None:
        self.frames = 0
        """Messages so far; those that pass unread count from their header on."""
        self._data = bytearray()
        self._skip = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The messages that are complete with this chunk, but compressed and overlong ones."""
        data = self._data
        skipped = min(self._skip, len(chunk))
        self._skip -= skipped
        data += chunk[skipped:] if skipped else chunk
        at = 0
        while len(data) - at >= FRAME_HEADER_BYTES:
            start = at + FRAME_HEADER_BYTES
            length = int.from_bytes(data[at + 1 : start], "big")
            if data[at] or length > MAX_MESSAGE_BYTES:
                self.frames += 1
                at = min(start + length, len(data))
                self._skip = start + length - at
                continue
            if start + length > len(data):
                break
            self.frames += 1
            at = start + length
            yield bytes(data[start:at])
        del data[:at]
