"""From request bodies to prompts: lists of tokens with the text that an echoing model repeats."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from simulator import tokenizer
from simulator.errors import ApiError
from simulator.wire import MAX_CHOICES, ContentPart, Message

_MEDIA = ("image_url", "video_url", "audio_url", "input_audio")


class Prompt(NamedTuple):
    """Packed tokens, and what `echo` repeats of them (None: all)."""

    tokens: bytes
    last_text: Callable[[], str] | None = None


def chat_prompt(messages: list[Message], tools: msgspec.Raw) -> Prompt:
    """Return the prompt of a chat; `tools` is JSON."""
    parts = [(message.role, _content(index, message)) for index, message in enumerate(messages)]
    return Prompt(tokenizer.encode_chat(parts, _given(tools)), lambda: _spoken(messages[-1]))


def text_prompts(given: str | list[Any], name: str) -> list[Prompt]:
    """Return the prompts in a text, a list of texts, a list of token ids or a list of such lists."""
    single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    prompts = [given] if single else given
    if not prompts:
        raise ApiError(400, f"{name}: must not be empty", param=name)
    if len(prompts) > MAX_CHOICES:
        raise ApiError(400, f"{name}: at most {MAX_CHOICES} prompts in one request", param=name)
    return [_text_prompt(prompt, f"{name}[{index}]") for index, prompt in enumerate(prompts)]


def _text_prompt(given: object, place: str) -> Prompt:
    if isinstance(given, str):
        tokens = tokenizer.encode_text(given)
    elif isinstance(given, list):
        try:
            tokens = tokenizer.from_ids(given)
        except (TypeError, OverflowError) as error:
            limit = tokenizer.MAX_TOKEN_ID
            raise ApiError(400, f"{place}: token ids must be integers from 0 to {limit}") from error
    else:
        raise ApiError(400, f"{place}: must be text or a list of token ids")
    if not tokens:
        raise ApiError(400, f"{place}: must not be empty")
    return Prompt(tokens)


def _content(index: int, message: Message) -> bytes:
    content = message.content
    if isinstance(content, str):
        tokens = tokenizer.encode_text(content)
    elif content is None:
        tokens = b""
    else:
        tokens = b"".join(_part(part, f"messages[{index}].content[{at}]") for at, part in enumerate(content))
    return tokens + tokenizer.encode_text(_given(message.tool_calls).decode())


def _given(document: msgspec.Raw) -> bytes:
    """Return JSON as text, or nothing when it says nothing."""
    text = bytes(document)
    return b"" if text in {b"null", b"[]"} else text


def _part(part: ContentPart, place: str) -> bytes:
    if part.text is not None:
        return tokenizer.encode_text(part.text)
    for kind in _MEDIA:
        reference = getattr(part, kind)
        if reference is not None:
            return tokenizer.encode_media(msgspec.json.encode(reference).decode())
    raise ApiError(400, f"{place}: a part of type {part.type[:40]!r} holds no text and no known media")


def _spoken(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text or "" for part in message.content or [])
