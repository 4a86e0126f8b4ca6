"""Request bodies of the Anthropic messages API: what a picker needs of them, and their prompts as text."""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.errors import BadRequestError
from epp.interfaces.request import ParsedBody
from epp.plugins.json_body import NOTHING, TextPart, decode
from epp.plugins.prompts import IMAGE_TOKENS, output_limit, stand_in

MAX_BLOCK_DEPTH: Final = 8
"""Levels of content within content that are read; the API itself knows three."""


class Source(msgspec.Struct, gc=False):
    """Where an image or a document comes from."""

    type: str = ""
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: str | list[Block] | None = None


class Block(TextPart, gc=False):
    """One content block: text, thinking, image, document, tool use, tool result, search result."""

    thinking: str | None = None
    name: str | None = None
    input: msgspec.Raw = NOTHING
    source: Source | str | None = None
    content: str | list[Block] | None = None


class Message(msgspec.Struct, gc=False):
    """One turn of the conversation."""

    role: str = ""
    content: str | list[Block] | None = None


class MessagesBody(msgspec.Struct, gc=False):
    """``messages``."""

    model: str = ""
    messages: list[Message] | None = None
    system: str | list[Block] | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    tools: msgspec.Raw = NOTHING


class CountBody(msgspec.Struct, gc=False):
    """``messages/count_tokens``, of which only the model matters."""

    model: str = ""


_messages: Final = msgspec.json.Decoder(MessagesBody)
_count: Final = msgspec.json.Decoder(CountBody)


def parse_messages(body: bytes) -> ParsedBody:
    """``messages``: a model and at least one message are required."""
    parsed = parse_unnamed_messages(body)
    if not parsed.model:
        raise BadRequestError("model not found in request body", param="model")
    return parsed


def parse_unnamed_messages(body: bytes) -> ParsedBody:
    """``messages`` where the model may be named elsewhere than in the body."""
    request = decode(body, _messages)
    if not request.messages:
        raise BadRequestError("messages must be a list of at least one message", param="messages")
    return ParsedBody(
        request.model,
        request.stream is True,
        messages_text(request),
        max_output_tokens=output_limit(request.max_tokens),
    )


def parse_count(body: bytes) -> ParsedBody:
    """``messages/count_tokens``: nothing is computed, so nothing is required and no prompt is known."""
    try:
        return ParsedBody(decode(body, _count).model)
    except BadRequestError:
        return ParsedBody()


def messages_text(request: MessagesBody) -> bytes:
    """UTF-8 text in chat template order: tools, system prompt, then role and content of each message."""
    out: list[str] = []
    if request.system:
        out.append("system\n")
        _add_content(request.system, out, MAX_BLOCK_DEPTH)
    for message in request.messages or ():
        out += (message.role, "\n")
        _add_content(message.content, out, MAX_BLOCK_DEPTH)
    return bytes(request.tools) + "".join(out).encode("utf-8", "surrogatepass")


def _add_content(content: str | list[Block] | None, out: list[str], depth: int) -> None:
    if isinstance(content, str):
        out += (content, "\n")
    elif content and depth:
        for block in content:
            _add_block(block, out, depth - 1)


def _add_block(block: Block, out: list[str], depth: int) -> None:
    """Whatever a block has: templates render each kind in some way of their own."""
    for text in (block.text, block.thinking):
        if text is not None:
            out += (text, "\n")
    if block.input is not NOTHING:
        out += (block.name or "", bytes(block.input).decode("utf-8", "replace"), "\n")
    if isinstance(block.source, Source):
        _add_source(block.source, out, depth)
    elif block.source is not None:
        out += (block.source, "\n")
    _add_content(block.content, out, depth)


def _add_source(source: Source, out: list[str], depth: int) -> None:
    """Plain text and content as they are; other media by a stand-in for their data or address."""
    if source.content is not None:
        _add_content(source.content, out, depth)
    elif source.type == "text":
        out += (source.data or "", "\n")
    elif reference := source.data or source.url or source.file_id:
        out.append(stand_in(reference, IMAGE_TOKENS))
