"""Request bodies of the OpenAI APIs: what a picker needs of them, and the text of their prompts."""

from __future__ import annotations

import msgspec

from epp.interfaces.request import MediaKind, Medium
from epp.plugins.json_body import NOTHING, TextPart
from epp.plugins.media import MediaParts, encoded


class Link(msgspec.Struct, gc=False):
    """``{"url": ...}``."""

    url: str = ""


class Audio(msgspec.Struct, gc=False):
    """``{"data": base64, "format": ...}``."""

    data: str = ""


class Part(TextPart, gc=False):
    """One part of a message's content."""

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


def chat_text(tools: msgspec.Raw, items: list[Item], before: int = 0) -> tuple[bytes, list[Medium] | None]:
    """A conversation in chat template order: tools, then role and text of each item, as UTF-8, and its media.

    ``before`` bytes of the prompt's text precede it.
    """
    out: list[str] = []
    media: MediaParts | None = None
    for item in items:
        content = item.content
        if isinstance(content, str):
            out += (item.role, "\n", content, "\n")
        else:
            out += (item.role, "\n")
            if content:
                media = media or MediaParts()
                _add_parts(content, media, out)
        if item.tool_calls is not NOTHING or item.arguments is not None or item.output is not None:
            media = media or MediaParts()
            _add_calls(item, media, out)
    first = b"" if tools is NOTHING else bytes(tools)
    if media is None:
        return first + encoded(out), None
    text, found = media.rendered(out, before + len(first))
    return first + text, found


def _add_calls(item: Item, media: MediaParts, out: list[str]) -> None:
    """Tool calls and their outputs, which templates render into the prompt as well."""
    if calls := bytes(item.tool_calls):
        out += (calls.decode("utf-8", "replace"), "\n")
    if item.arguments is not None:
        out += (item.name or "", item.arguments, "\n")
    if isinstance(item.output, str):
        out += (item.output, "\n")
    elif item.output:
        _add_parts(item.output, media, out)


def _add_parts(parts: list[Part], media: MediaParts, out: list[str]) -> None:
    for part in parts:
        if part.text is not None:
            out += (part.text, "\n")
        elif part.refusal is not None:
            out += (part.refusal, "\n")
        else:
            _add_medium(part, media, out)


def _add_medium(part: Part, media: MediaParts, out: list[str]) -> None:
    for link, kind in (
        (part.image_url, MediaKind.IMAGE),
        (part.video_url, MediaKind.VIDEO),
        (part.audio_url, MediaKind.AUDIO),
    ):
        if link is not None:
            media.add(kind, link if isinstance(link, str) else link.url, out)
            return
    if part.input_audio is not None:
        media.add(MediaKind.AUDIO, part.input_audio.data, out, is_data=True)
    elif reference := part.file_id or part.file_data or bytes(part.file).decode("utf-8", "replace"):
        media.add(MediaKind.FILE, reference, out)
