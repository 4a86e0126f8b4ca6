"""What a replica answers: texts that are known before their first token is generated.

Since the whole answer is a function of the seed and the prompt, no text is kept per request: an answer is a
position in one shared table of words of exactly four bytes, so that it tokenizes to the very tokens that were
generated and the next turn of a conversation finds them in the cache. `echo` answers repeat the prompt.
"""

import random
from collections.abc import Callable
from statistics import NormalDist
from typing import Literal, Protocol

import msgspec
import xxhash

from simulator.tokenizer import END, TOKEN_BYTES, decode, encode_text

FinishReason = Literal["stop", "length"]

_TABLE_TOKENS = 1 << 15
_WORDS = (
    b"and the for not one all but can had her was our out day get has him his how man new now old see two "
    b"way who boy did its let put say she too use any may sun sky sea air ice oak elm fir ash bay bee ant "
    b"cat dog cow fox owl hen ram elk eel cod map key pen ink box cup jar lid pot pan mug tin bag hat cap "
    b"tie toe arm leg lip eye ear rib hip red tan raw dry wet hot icy big few far low shy sly odd apt run "
    b"sit fly dig mix cut fix hum nod row sew sow tap wag win zip ask beg buy cry eat end fit got hit hop "
    b"led met owe pay pin "
)
"""Words of three letters and a space: four bytes, one token."""
_LENGTH_SPREAD = NormalDist(40, 20)
_BUCKET_SHARES = (0.20, 0.30, 0.20, 0.05, 0.10, 0.15)
_BUCKET_WIDTH = 20
_WIDE_BUCKET = 3

_escape = msgspec.json.Encoder().encode


class Answer(Protocol):
    """One choice of a response, known in full; `length` counts its tokens, the end marker included."""

    length: int
    finish_reason: FinishReason

    def tokens(self, start: int, stop: int) -> bytes:
        """Return the packed tokens `start` to `stop`."""
        ...

    def text(self, cursor: int, generated: int) -> tuple[bytes, int]:
        """Return what JSON text follows byte `cursor` once `generated` tokens exist, and the new cursor.

        The text is escaped for use inside a JSON string and never ends within a character.
        """
        ...


class NoAnswer:
    """The answer to a request that only reads: embeddings."""

    length = 0
    finish_reason: FinishReason = "stop"

    def tokens(self, start: int, stop: int) -> bytes:
        """Return no token."""
        return b""

    def text(self, cursor: int, generated: int) -> tuple[bytes, int]:
        """Return no text."""
        return b"", cursor


class TableAnswer:
    """Words from the shared table, starting at `offset`, then the end marker if it stops by itself."""

    __slots__ = ("_offset", "_table", "_text_bytes", "finish_reason", "length")

    def __init__(self, table: bytes, offset: int, length: int, finish_reason: FinishReason) -> None:
        self.length = length
        self.finish_reason = finish_reason
        self._table = table
        self._offset = offset * TOKEN_BYTES
        self._text_bytes = (length - (finish_reason == "stop")) * TOKEN_BYTES

    def tokens(self, start: int, stop: int) -> bytes:
        """Return the packed tokens `start` to `stop`."""
        text = self._slice(start * TOKEN_BYTES, min(stop * TOKEN_BYTES, self._text_bytes))
        return text + END if stop * TOKEN_BYTES > self._text_bytes else text

    def text(self, cursor: int, generated: int) -> tuple[bytes, int]:
        """Return the words between `cursor` and the last generated token."""
        end = min(generated * TOKEN_BYTES, self._text_bytes)
        return self._slice(cursor, end), end

    def _slice(self, start: int, end: int) -> bytes:
        period = _TABLE_TOKENS * TOKEN_BYTES
        first = (self._offset + start) % period
        if end - start <= period:
            return self._table[first : first + end - start]
        whole = self._table[first : first + period]
        return (whole * ((end - start) // period + 1))[: end - start]


class EchoAnswer:
    """The prompt's own text, then the end marker if there is room for it."""

    __slots__ = ("_data", "_packed", "_text_bytes", "finish_reason", "length")

    def __init__(self, text: str, limit: int) -> None:
        self._data = text.encode()
        self._packed = encode_text(text) + END
        whole = len(self._packed) // TOKEN_BYTES
        self.length = min(whole, limit)
        self.finish_reason: FinishReason = "stop" if whole <= limit else "length"
        self._text_bytes = min(len(self._data), self.length * TOKEN_BYTES)

    def tokens(self, start: int, stop: int) -> bytes:
        """Return the packed tokens `start` to `stop`."""
        return self._packed[start * TOKEN_BYTES : stop * TOKEN_BYTES]

    def text(self, cursor: int, generated: int) -> tuple[bytes, int]:
        """Return the characters that are complete by now; a character cut off by the limit is dropped."""
        end = min(generated * TOKEN_BYTES, self._text_bytes)
        while end > cursor and end < len(self._data) and self._data[end] & 0xC0 == 0x80:
            end -= 1
        return _escape(self._data[cursor:end].decode())[1:-1], end


class AnswerSource:
    """Makes answers by seed: the same prompt gets the same answer from every replica with that seed."""

    def __init__(self, mode: Literal["random", "echo"], seed: int) -> None:
        self._mode = mode
        self._seed = seed
        words = [_WORDS[start : start + TOKEN_BYTES] for start in range(0, len(_WORDS), TOKEN_BYTES)]
        picked = b"".join(random.Random(seed).choices(words, k=_TABLE_TOKENS))  # noqa: S311
        self._table = picked + picked

    def answer(
        self,
        prompt: bytes,
        last_text: Callable[[], str] | None,
        *,
        limit: int,
        wanted: int | None,
        exact: bool,
        variant: int,
    ) -> Answer:
        """Return the answer to `prompt`.

        `limit` is the room left in the context, `wanted` the client's maximum (None: as the model likes), and
        `exact` makes it the length. `last_text` gives what `echo` repeats (the prompt itself when None);
        `variant` tells apart the choices and the seeds of one prompt.
        """
        limit = limit if wanted is None else min(limit, wanted)
        if self._mode == "echo":
            return EchoAnswer(last_text() if last_text else decode(prompt), limit)
        mixed = xxhash.xxh3_64_intdigest(prompt, (self._seed * 0x9E3779B97F4A7C15 + variant) % 2**64)
        offset = mixed % _TABLE_TOKENS
        if exact:
            return TableAnswer(self._table, offset, limit, "length")
        draw = random.Random(mixed)  # noqa: S311
        length = _natural_length(draw) if wanted is None else _bucketed_length(draw, wanted)
        reason: FinishReason = "stop" if length < limit else "length"
        return TableAnswer(self._table, offset, min(length, limit), reason)


def _natural_length(draw: random.Random) -> int:
    return max(2, round(_LENGTH_SPREAD.inv_cdf(draw.random() or 0.5)))


def _bucketed_length(draw: random.Random, wanted: int) -> int:
    """Draw a length up to `wanted` from six buckets; when they are wide, the fourth takes the surplus."""
    bucket = draw.choices(range(len(_BUCKET_SHARES)), _BUCKET_SHARES)[0]
    if wanted <= _BUCKET_WIDTH * len(_BUCKET_SHARES):
        width = wanted / len(_BUCKET_SHARES)
        low, high = bucket * width, (bucket + 1) * width
    else:
        surplus = wanted - _BUCKET_WIDTH * (len(_BUCKET_SHARES) - 1)
        low = bucket * _BUCKET_WIDTH + (surplus - _BUCKET_WIDTH if bucket > _WIDE_BUCKET else 0)
        high = low + (surplus if bucket == _WIDE_BUCKET else _BUCKET_WIDTH)
    return min(wanted, max(2, int(low + draw.random() * (high - low)) + 1))
