"""How many tokens may go in, and how many may be asked for.

Without a count by the model's own tokenizer the prompt's tokens are estimated, rather too many than too few:
four characters of ASCII make one, two of other alphabets, one of Han, kana, Hangul and what people do not
read. Prompts that are lists of tokens are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dataplane.config.guardrails import MaxTokens
from ipp.guardrails import normalize
from ipp.guardrails.matches import BodyMatch, Change, Facts
from ipp.guardrails.rules.fields import ABSENT, OUTPUT_LIMITS, is_number, look

PER_ASCII: Final = 0.25
PER_ALPHABET: Final = 0.5
PER_CHARACTER: Final = 1.0
PER_MESSAGE: Final = 4
"""Tokens of what a chat template puts around a message."""
MAX_DEPTH: Final = 64
THINKING: Final = ("thinking", "budget_tokens")
LEAST_THINKING: Final = 1024
"""Tokens; the API takes no smaller budget."""
OFF: Final[Mapping[str, str]] = {"type": "disabled"}

_PROMPT: Final = (
    "messages",
    "system",
    "prompt",
    "suffix",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "system_instruction",
    "query",
    "documents",
    "tools",
    "functions",
    "inputs",
)
_NOT_TEXT: Final = frozenset(
    {"data", "file_data", "image_url", "url", "file_id", "id", "tool_call_id", "signature"}
)
"""Keys whose values are pictures, references and names."""


class MaxInputTokensRule:
    """Kinds: ``tooMany`` when somebody has counted, ``tooManyEstimated`` when nobody has."""

    def __init__(self, parameters: MaxTokens) -> None:
        self._limit = parameters.tokens

    def check(self, body: Mapping[str, Any], facts: Facts) -> Sequence[BodyMatch]:
        counted = facts.input_tokens
        if (estimate(body) if counted is None else counted) <= self._limit:
            return []
        return [BodyMatch("", "tooManyEstimated" if counted is None and not _is_counted(body) else "tooMany")]


class MaxOutputTokensRule:
    """Kinds: ``tooMany``, ``type`` = no whole number, ``missing`` = nothing is said, which masking mends."""

    def __init__(self, parameters: MaxTokens, *, masking: bool) -> None:
        self._limit, self._masking = parameters.tokens, masking

    def check(self, body: Mapping[str, Any], facts: Facts) -> Sequence[BodyMatch]:
        found: list[BodyMatch] = []
        given = False
        for keys in OUTPUT_LIMITS:
            value = look(body, keys)
            if value is ABSENT or value is None:
                continue
            given = True
            kind = self._wrong(value)
            if kind:
                found.append(BodyMatch(".".join(keys), kind, (Change(keys, self._limit),)))
        found += self._check_thinking(body)
        keys = _usual(body, facts.path)
        if self._masking and not given and keys:
            found.append(BodyMatch(".".join(keys), "missing", (Change(keys, self._limit),)))
        return found

    def _check_thinking(self, body: Mapping[str, Any]) -> Iterator[BodyMatch]:
        """Anthropic counts thinking as output, and refuses a budget that is not below the limit."""
        budget = look(body, THINKING)
        if self._masking and is_number(budget) and budget >= self._limit:
            keys, value = (THINKING, self._limit - 1) if self._limit > LEAST_THINKING else (THINKING[:1], OFF)
            yield BodyMatch(".".join(THINKING), "tooMany", (Change(keys, value),))

    def _wrong(self, value: Any) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return "type"
        # Some servers take 0 or -1 for no limit.
        return "tooMany" if value > self._limit or value < 1 else ""


def _usual(body: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """Where a request of its shape says how long the answer may be; nothing for those without an answer."""
    end = path.partition("?")[0].rstrip("/")
    if end.endswith(("/converse", "/converse-stream")):
        return ("inferenceConfig", "maxTokens")
    if end.endswith(("/api/chat", "/api/generate")):
        return ("options", "num_predict")
    if "contents" in body:
        return ("generationConfig", "maxOutputTokens")
    if "messages" in body or "prompt" in body:
        return ("max_tokens",)
    return ("max_output_tokens",) if end.endswith("/responses") else ()


def _is_counted(body: Mapping[str, Any]) -> bool:
    """Whether the prompt comes as lists of tokens, which are as many as they are."""
    prompt = body.get("prompt", body.get("input"))
    first = prompt[0] if isinstance(prompt, list) and prompt else None
    within = first[0] if isinstance(first, list) and first else first
    return type(within) is int and "messages" not in body


def estimate(body: Mapping[str, Any]) -> int:
    """Tokens of the prompt, roughly."""
    total = 0.0
    for text in _texts([body[key] for key in _PROMPT if key in body]):
        total += text if isinstance(text, int) else estimate_text(text)
    messages = body.get("messages")
    return int(total + 0.999) + (PER_MESSAGE * len(messages) if isinstance(messages, list) else 0)


def estimate_text(text: str) -> float:
    """Tokens of one text, roughly."""
    if text.isascii():
        return len(text) * PER_ASCII
    codes = normalize.encode(text)
    plain = int((codes < 0x80).sum())
    spaced = int((normalize.classes()[codes[codes >= 0x80]] & normalize.WORD).astype(np.bool_).sum())
    return plain * PER_ASCII + spaced * PER_ALPHABET + (len(codes) - plain - spaced) * PER_CHARACTER


def _texts(values: list[Any]) -> Iterator[str | int]:
    """Texts, and for lists of tokens how many."""
    waiting: list[tuple[Any, int]] = [(value, 0) for value in reversed(values)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, str):
            yield value
        elif depth > MAX_DEPTH:
            continue
        elif isinstance(value, list):
            if value and all(type(item) is int for item in value):
                yield len(value)
            else:
                waiting.extend((item, depth + 1) for item in value)
        elif isinstance(value, dict):
            waiting.extend((item, depth + 1) for key, item in value.items() if key not in _NOT_TEXT)
