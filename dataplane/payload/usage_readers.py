"""Which API an answer is of, as far as its usage goes."""

from __future__ import annotations

from dataplane.payload.anthropic_usage import AnthropicUsageReader
from dataplane.payload.gemini_usage import GeminiUsageReader
from dataplane.payload.openai_usage import UsageReader


def usage_reader(path: str, *, streaming: bool) -> UsageReader:
    """What reads usage in answers to requests to this path; those of unknown APIs are read as OpenAI's."""
    plain = path.partition("?")[0].rstrip("/")
    if plain.endswith("/messages"):
        return AnthropicUsageReader(streaming)
    if plain.endswith((":generateContent", ":streamGenerateContent")):
        return GeminiUsageReader(streaming)
    return UsageReader(streaming)
