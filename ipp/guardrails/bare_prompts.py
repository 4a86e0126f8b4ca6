"""Prompts that nobody can read: token ids or embeddings in the place of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_PROMPTS: Final = ("prompt", "input", "inputs", "input_ids", "prompt_token_ids", "token_ids", "tokens")
_EMBEDDED: Final = ("prompt_embeds", "input_embeds", "inputs_embeds")


def bare_prompt(body: Any) -> str:
    """The field that holds such a prompt; empty when none does."""
    if not isinstance(body, Mapping):
        return ""
    for field in _PROMPTS:
        prompt = body.get(field)
        if isinstance(prompt, list) and any(map(_is_bare, prompt)):
            return field
    return next((field for field in _EMBEDDED if body.get(field)), "")


def _is_bare(item: Any) -> bool:
    """A number, or a prompt of a batch with one in it."""
    if isinstance(item, list):
        return any(isinstance(each, int | float) for each in item)
    return isinstance(item, int | float)
