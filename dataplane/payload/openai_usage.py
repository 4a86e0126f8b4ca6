"""Read token usage and count events while a response passes, without keeping the response.

A quote inside a JSON string is always escaped, so the bytes ``"usage"`` followed by ``:`` and ``{`` can only
be a key with an object: they are looked for in the raw bytes, and only that object is decoded. The same
search works for a plain JSON body and for server-sent events. Chunks may be cut at any byte: what might be
the beginning of something is carried over, at most ``MAX_USAGE_BYTES`` and a few more bytes.

Later reports override earlier ones field by field.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.payload.token_usage import Usage

MAX_USAGE_BYTES: Final = 4096
"""Longest usage object that is read, counted from its key."""

_EVENT: Final = b"\ndata:"
_EVENT_OVERLAP: Final = len(_EVENT) - 1
_DONE: Final = re.compile(rb"\ndata: ?\[DONE\]\s*$")
_HOLD: Final = 32
"""Bytes at the end of the body so far that are looked at again: longer than either mark and than [DONE]."""

_SPACE: Final = b" \t\r\n"
Tokens = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Tokens | None = None


class _Report(msgspec.Struct, gc=False):
    """The usage object of the chat, completions, embeddings and responses APIs."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None

    def cached(self) -> int | None:
        details = self.prompt_tokens_details or self.input_tokens_details
        return None if details is None else details.cached_tokens


_decode: Final = msgspec.json.Decoder(_Report).decode


class UsageReader:
    """Reads one response body, chunk by chunk."""

    key: ClassVar[bytes] = b'"usage"'
    """Of the object that is looked for, as it is spelt."""

    __slots__ = ("_carry", "_streaming", "_usage", "events")

    def __init__(self, streaming: bool) -> None:
        self.events = 0
        self._streaming = streaming
        self._carry = b"\n" if streaming else b""
        self._usage: Usage | None = None

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        data = self._carry + chunk
        cut = len(data) - _HOLD
        if cut <= 0:
            self._carry = data
            return
        if data.rfind(self.key) >= 0:  # three times as fast as a search from the left
            cut = self._scan(data, cut, whole=False)
        if self._streaming:
            self.events += data.count(_EVENT, 0, cut + _EVENT_OVERLAP)
        self._carry = data[cut:]

    def finish(self) -> Usage | None:
        """Usage found, None if there was none. The body has ended or broken off."""
        data, self._carry = self._carry, b""
        self._scan(data, len(data), whole=True)
        if self._streaming:
            self.events += data.count(_EVENT)
            if _DONE.search(data):
                self.events -= 1
        return self._usage

    def _scan(self, data: bytes, cut: int, *, whole: bool) -> int:
        """Read usage objects that begin before ``cut``; where the bytes to carry over begin."""
        key = self.key
        at = data.find(key)
        while 0 <= at < cut:
            if not self._read(data, at + len(key), whole=whole):
                return at
            at = data.find(key, at + len(key))
        return cut

    def _read(self, data: bytes, start: int, *, whole: bool) -> bool:
        """Read what follows a usage key. False = more bytes are needed to tell."""
        if data.startswith(b":null", start):
            return True
        window = data[start : start + MAX_USAGE_BYTES]
        settled = whole or len(window) == MAX_USAGE_BYTES
        for mark in (b":", b"{"):
            window = window.lstrip(_SPACE)
            if not window:
                return settled
            if not window.startswith(mark):
                return True
            window = window[1:]
        end = window.find(b"}")
        while end >= 0:
            inner = window[:end]
            if inner.count(b"{") == inner.count(b"}"):
                self._merge(b"{" + inner + b"}")
                return True
            end = window.find(b"}", end + 1)
        return settled

    def _merge(self, text: bytes) -> None:
        try:
            report = _decode(text)
        except msgspec.DecodeError:
            return  # another thing that is called usage
        prompt = report.prompt_tokens if report.prompt_tokens is not None else report.input_tokens
        output = report.completion_tokens if report.completion_tokens is not None else report.output_tokens
        found = (prompt, output, report.total_tokens, report.cached())
        if found == (None, None, None, None):
            return
        usage = self._usage = self._usage or Usage()
        usage.prompt_tokens = prompt if prompt is not None else usage.prompt_tokens
        usage.completion_tokens = output if output is not None else usage.completion_tokens
        usage.total_tokens = found[2] if found[2] is not None else usage.total_tokens
        usage.cached_tokens = found[3] if found[3] is not None else usage.cached_tokens
