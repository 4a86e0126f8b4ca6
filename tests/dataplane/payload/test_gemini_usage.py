"""Usage of Gemini's answers, whole and streamed, and which API an answer is of."""

from __future__ import annotations

import json

import pytest

from dataplane.payload.anthropic_usage import AnthropicUsageReader
from dataplane.payload.gemini_usage import GeminiUsageReader
from dataplane.payload.openai_usage import UsageReader
from dataplane.payload.token_usage import Usage
from dataplane.payload.usage_readers import usage_reader


def read(*chunks: bytes, streaming: bool = False) -> Usage | None:
    reader = GeminiUsageReader(streaming)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def test_thoughts_are_generated_tokens() -> None:
    usage = {
        "promptTokenCount": 9,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
        "totalTokenCount": 16,
        "cachedContentTokenCount": 2,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 9}],
    }
    body = json.dumps({"candidates": [], "usageMetadata": usage}).encode()
    assert read(body) == Usage(9, 7, 16, 2)
    assert read(*(body[at : at + 1] for at in range(len(body)))) == Usage(9, 7, 16, 2)


def test_the_last_report_of_a_stream_counts() -> None:
    events = [{"usageMetadata": {"promptTokenCount": 5}}, {"usageMetadata": {"candidatesTokenCount": 8}}]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    assert read(stream, streaming=True) == Usage(5, 8, None, None)
    assert read(b'{"usage": {"prompt_tokens": 3}}') is None
    assert read(b'{"usageMetadata": {"promptTokenCount": "x"}}') is None


@pytest.mark.parametrize(
    ("path", "reader"),
    [
        ("/v1/chat/completions", UsageReader),
        ("/v1/responses?x=/messages", UsageReader),
        ("/v1/messages", AnthropicUsageReader),
        ("/anthropic/v1/messages/?beta=true", AnthropicUsageReader),
        ("/v1beta/models/gemini:generateContent", GeminiUsageReader),
        ("/v1beta/models/gemini:streamGenerateContent?alt=sse", GeminiUsageReader),
        ("", UsageReader),
    ],
)
def test_the_path_says_the_api(path: str, reader: type[UsageReader]) -> None:
    assert type(usage_reader(path, streaming=True)) is reader
