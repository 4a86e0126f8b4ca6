"""Read token usage of Gemini's generateContent while a response passes.

Thinking is counted apart from candidates; what is generated is the sum of both. The prompt's count includes
what was cached.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from dataplane.payload.openai_usage import Tokens, UsageReader
from dataplane.payload.token_usage import Usage


class _Report(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: Tokens | None = None
    candidates_token_count: Tokens | None = None
    thoughts_token_count: Tokens | None = None
    total_token_count: Tokens | None = None
    cached_content_token_count: Tokens | None = None


_decode: Final = msgspec.json.Decoder(_Report).decode
_FIELDS: Final = _Report.__struct_fields__


class GeminiUsageReader(UsageReader):
    """Reads one response body, chunk by chunk; of a stream the last report of each count."""

    key: ClassVar[bytes] = b'"usageMetadata"'

    __slots__ = ("_known",)

    def __init__(self, streaming: bool) -> None:
        super().__init__(streaming)
        self._known = _Report()

    def _merge(self, text: bytes) -> None:
        try:
            report = _decode(text)
        except msgspec.DecodeError:
            return  # another thing of that name
        known = self._known
        for field in _FIELDS:
            tokens = getattr(report, field)
            if tokens is not None:
                setattr(known, field, tokens)
        if known != _Report():
            said = [n for n in (known.candidates_token_count, known.thoughts_token_count) if n is not None]
            self._usage = Usage(
                prompt_tokens=known.prompt_token_count,
                completion_tokens=sum(said) if said else None,
                total_tokens=known.total_token_count,
                cached_tokens=known.cached_content_token_count,
            )
