"""Request bodies of the OpenAI APIs: what a picker needs of them, and the text of their prompts.

Each body is decoded once into a struct of the few fields that matter. A body that does not fit its struct is
decoded generically and read leniently, field by field: the model server is the judge of a request's details,
not the picker. Malformed JSON is refused with line, column and offset.
"""

from __future__ import annotations

import json
import types
import typing
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
import xxhash

from dataplane.errors import BadRequestError

IMAGE_TOKENS: Final = 225
"""Tokens an image stands for: 640 x 360 pixels, 1024 to a token."""
AUDIO_TOKENS: Final = 250
"""Tokens a piece of audio stands for: ten seconds, 25 tokens each."""
VIDEO_TOKENS: Final = 20 * IMAGE_TOKENS
"""Tokens a video stands for: ten seconds, two frames each."""

_DIGEST_TOKENS: Final = 4
"""Pseudo-tokens of four bytes in a digest of 16 hexadecimal digits."""

S = TypeVar("S", bound=msgspec.Struct)
NOTHING: Final = msgspec.Raw()
"""Default of fields whose JSON is kept as it is; absent fields hold this very object."""


class Link(msgspec.Struct, gc=False):
    """``{"url": ...}``."""

    url: str = ""


class Audio(msgspec.Struct, gc=False):
    """``{"data": base64, "format": ...}``."""

    data: str = ""


class Part(msgspec.Struct, gc=False):
    """One part of a message's content."""

    text: str | None = None
    refusal: str | None = None
    image_url: Link | str | None = None
    video_url: Link | str | None = None
    audio_url: Link | str | None = None
    input_audio: Audio | None = None
    file: msgspec.Raw = NOTHING
    file_id: str | None = None
    file_data: str | None = None


class Item(msgspec.Struct, gc=False):
    """A chat message, or an input item of the responses API: a message, a tool call or its output."""

    role: str = ""
    content: str | list[Part] | None = None
    tool_calls: msgspec.Raw = NOTHING
    name: str | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None


class ChatBody(msgspec.Struct, gc=False):
    """``chat/completions``."""

    model: str = ""
    messages: list[Item] | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    cache_salt: str | None = None
    tools: msgspec.Raw = NOTHING


class CompletionBody(msgspec.Struct, gc=False):
    """``completions`` and ``images/generations``."""

    model: str = ""
    prompt: str | list[str | int | list[int]] | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    cache_salt: str | None = None


class EmbeddingBody(msgspec.Struct, gc=False):
    """``embeddings``."""

    model: str = ""
    input: str | list[str | int | list[int]] | None = None
    cache_salt: str | None = None


class ResponsesBody(msgspec.Struct, gc=False):
    """``responses`` and ``conversations``."""

    model: str = ""
    instructions: str | None = None
    input: str | list[Item] | None = None
    items: list[Item] | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    cache_salt: str | None = None
    tools: msgspec.Raw = NOTHING


def decode(body: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    """The body as the decoder's struct. ``BadRequestError`` when it is not a JSON object."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        try:
            raw = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raw = _second_opinion(body)
    except (msgspec.DecodeError, RecursionError):
        raw = _second_opinion(body)
    if not isinstance(raw, dict):
        raise BadRequestError("the request body must be a JSON object")
    fitted: S = _fit(raw, decoder.type)
    return fitted


def _second_opinion(body: bytes) -> Any:
    """What Python's own reader makes of it: as model servers do, it accepts NaN, and it names the place."""
    try:
        return json.loads(bytes(body).decode())
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}, offset {error.pos}"
        raise BadRequestError(f"the request body is not valid JSON: {error.msg} ({place})") from None
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the request body is not UTF-8 text (offset {error.start})") from None
    except RecursionError:
        raise BadRequestError("the request body is nested too deeply") from None
    except ValueError as error:
        raise BadRequestError(f"the request body cannot be read: {error}") from None


@lru_cache(maxsize=32)
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _fit(raw: Any, hint: Any) -> Any:
    """``raw`` as far as it fits ``hint``; None where it does not, unfit list items left out."""
    if hint is msgspec.Raw:
        return msgspec.Raw(
            json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
        )
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        fitting = (_fit(raw, member) for member in args if member is not types.NoneType)
        return next((value for value in fitting if value is not None), None)
    if origin is list:
        if not isinstance(raw, list):
            return None
        return [value for item in raw if (value := _fit(item, args[0])) is not None]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if isinstance(raw, str) and hint is Part:
            return Part(text=raw)
        if not isinstance(raw, dict):
            return None
        hints = _hints(hint)
        found = {name: _fit(raw[name], hints[name]) for name in hints if name in raw}
        return hint(**{name: value for name, value in found.items() if value is not None})
    if hint is int and isinstance(raw, float):
        return int(raw) if raw.is_integer() else None
    return raw if type(raw) is hint else None


def chat_text(tools: msgspec.Raw, items: list[Item]) -> bytes:
    """UTF-8 text of a conversation in chat template order: tools, then role and text of each item."""
    out: list[str] = []
    for item in items:
        content = item.content
        if isinstance(content, str):
            out += (item.role, "\n", content, "\n")
        else:
            out += (item.role, "\n")
            if content:
                _add_parts(content, out)
        if item.tool_calls is not NOTHING or item.arguments is not None or item.output is not None:
            _add_calls(item, out)
    text = "".join(out).encode("utf-8", "surrogatepass")
    return text if tools is NOTHING else bytes(tools) + text


def _add_calls(item: Item, out: list[str]) -> None:
    """Tool calls and their outputs, which templates render into the prompt as well."""
    if calls := bytes(item.tool_calls):
        out += (calls.decode("utf-8", "replace"), "\n")
    if item.arguments is not None:
        out += (item.name or "", item.arguments, "\n")
    if isinstance(item.output, str):
        out += (item.output, "\n")
    elif item.output:
        _add_parts(item.output, out)


def _add_parts(parts: list[Part], out: list[str]) -> None:
    for part in parts:
        if part.text is not None:
            out += (part.text, "\n")
        elif part.refusal is not None:
            out += (part.refusal, "\n")
        else:
            out.append(_placeholder(part))


def _placeholder(part: Part) -> str:
    """Text of about as many tokens as the medium stands for, the same for the same medium."""
    for link, tokens in (
        (part.image_url, IMAGE_TOKENS),
        (part.video_url, VIDEO_TOKENS),
        (part.audio_url, AUDIO_TOKENS),
    ):
        if link is not None:
            return _digest(link if isinstance(link, str) else link.url, tokens)
    if part.input_audio is not None:
        return _digest(part.input_audio.data, AUDIO_TOKENS)
    reference = part.file_id or part.file_data or bytes(part.file).decode("utf-8", "replace")
    return _digest(reference, IMAGE_TOKENS) if reference else ""


def _digest(reference: str, tokens: int) -> str:
    digest: str = xxhash.xxh3_64_hexdigest(reference.encode("utf-8", "surrogatepass"))
    return digest * (tokens // _DIGEST_TOKENS)
