"""Read token usage from SGLang's ``meta_info`` while a response passes.

``meta_info`` may hold megabytes of log-probabilities between two counts, so the object is never collected:
its few fields are looked for in the raw bytes. A quote inside a JSON string is always escaped, so a name in
bare quotes followed by a colon can only be a key. What might be the beginning of such a pair is carried over.

A response may answer several prompts, or one several times; each answer has an id. Counts of one id override
earlier ones, as a stream repeats them with every event; those of different ids are added up.
"""

from __future__ import annotations

import re
from typing import Final

from dataplane.payload.openai_usage import UsageReader
from dataplane.payload.token_usage import Usage

MAX_ANSWERS: Final = 1024
"""Answers of one response that are told apart; the counts of further ones are left out."""

_PAIR: Final = re.compile(
    rb'"(?:id"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}"([^"\\]{0,128})"'
    rb'|(prompt|completion|cached)_tokens"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}(\d{1,14})[ \t\r\n,}])'
)
_LONGEST_PAIR: Final = 160
"""Bytes of the longest pair and a few more."""

_PLACES: Final = {b"prompt": 0, b"completion": 1, b"cached": 2}

Counts = list[int | None]


class MetaInfoReader(UsageReader):
    """Reads one response body, chunk by chunk."""

    __slots__ = ("_answers", "_counts", "_tail")

    def __init__(self, streaming: bool) -> None:
        super().__init__(streaming)
        self._tail = b""
        self._answers: dict[bytes, Counts] = {}
        self._counts: Counts | None = None

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        super().feed(chunk)  # counts events
        data = self._tail + chunk
        end = 0
        for pair in _PAIR.finditer(data):
            end = pair.end()
            self._take(pair)
        self._tail = data[max(end, len(data) - _LONGEST_PAIR) :]

    def finish(self) -> Usage | None:
        """Usage found, None if there was none. The body has ended or broken off."""
        super().finish()
        if not any(count is not None for counts in self._answers.values() for count in counts):
            return None
        prompt, completion, cached = map(self._total, range(3))
        return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)

    def _take(self, pair: re.Match[bytes]) -> None:
        answer, name, count = pair.groups()
        if name is None:
            self._counts = self._of(answer)
            return
        if self._counts is None:
            self._counts = self._of(b"")
        self._counts[_PLACES[name]] = int(count)

    def _of(self, answer: bytes) -> Counts:
        if answer not in self._answers and len(self._answers) >= MAX_ANSWERS:
            return [None, None, None]
        return self._answers.setdefault(answer, [None, None, None])

    def _total(self, place: int) -> int | None:
        known = [counts[place] for counts in self._answers.values()]
        reported = [count for count in known if count is not None]
        return sum(reported) if reported else None
