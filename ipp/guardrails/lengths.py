"""Which bodies take so long to look at that it has to be done beside the event loop.

What a body costs depends on what is in it: prose takes a few hundredths of a microsecond a byte, numbers that
may be cards or addresses thirty times as much, and some rules cost more than all others together. So small
bodies are always looked at at once, which a thread would not make cheaper, large ones never, and of the rest
those that are expected to hold the loop up.
"""

from __future__ import annotations

from typing import Final

SHORT_BYTES: Final = 8 << 10
"""Bodies up to this are looked at at once, whatever is in them."""
ASIDE_BYTES: Final = 48 << 10
"""Larger ones are looked at in a thread, whatever is in them."""
MAX_INLINE_US: Final = 10_000.0
"""Longer nothing else may wait for a body."""

_BYTE_US: Final = 0.1
_DIGIT_US: Final = 1.0
_SIGN_US: Final = 4.0
"""What a byte of text, a digit and an at sign cost at most, as far as is known."""
_DIGITS: Final = b"0123456789"
_SHARE: Final = 1 / 16
"""Of each look in the average of a policy."""


class Pace:
    """How much CPU time a policy takes for a byte, on average and lately."""

    __slots__ = ("us_per_byte",)

    def __init__(self) -> None:
        self.us_per_byte = 0.0

    def took(self, size: int, seconds: float) -> None:
        """Learn from a look at a body: its size, and CPU seconds."""
        if size > SHORT_BYTES:
            self.us_per_byte += (seconds * 1e6 / size - self.us_per_byte) * _SHARE

    def is_long(self, body: bytes) -> bool:
        """Whether a body has to be looked at beside the event loop."""
        size = len(body)
        if size <= SHORT_BYTES or size > ASIDE_BYTES:
            return size > ASIDE_BYTES
        digits = size - len(body.translate(None, _DIGITS))
        expected = size * max(_BYTE_US, self.us_per_byte) + digits * _DIGIT_US + body.count(b"@") * _SIGN_US
        return expected > MAX_INLINE_US
