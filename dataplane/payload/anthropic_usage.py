"""Read token usage of the Anthropic messages API while a response passes.

A stream reports in parts: the input with ``message_start``, the output with ``message_delta``, either again
with later events. Fields are merged one by one, the later report wins; a later zero does not, since some
servers fill with zeros what they do not repeat.

This API counts cached input apart from other input; the prompt is the sum of both.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.payload.openai_usage import Tokens, UsageReader
from dataplane.payload.token_usage import Usage


class _Report(msgspec.Struct, gc=False):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None


_decode: Final = msgspec.json.Decoder(_Report).decode
_FIELDS: Final = _Report.__struct_fields__


class AnthropicUsageReader(UsageReader):
    """Reads one response body, chunk by chunk."""

    __slots__ = ("_known",)

    def __init__(self, streaming: bool) -> None:
        super().__init__(streaming)
        self._known = _Report()

    def _merge(self, text: bytes) -> None:
        try:
            report = _decode(text)
        except msgspec.DecodeError:
            return  # another thing that is called usage
        known = self._known
        for field in _FIELDS:
            tokens = getattr(report, field)
            if tokens or (tokens is not None and getattr(known, field) is None):
                setattr(known, field, tokens)
        if known != _Report():
            self._usage = _usage(known)


def _usage(known: _Report) -> Usage:
    inputs = (known.input_tokens, known.cache_read_input_tokens, known.cache_creation_input_tokens)
    reported = [tokens for tokens in inputs if tokens is not None]
    return Usage(
        prompt_tokens=sum(reported) if reported else None,
        completion_tokens=known.output_tokens,
        cached_tokens=known.cache_read_input_tokens,
    )
