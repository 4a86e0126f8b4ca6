"""Request bodies of the Anthropic messages API: what a picker needs of them, and their prompts as text."""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.errors import BadRequestError
from epp.interfaces.request import MediaKind, Medium, ModelUse, ParsedBody
from epp.plugins.json_body import NOTHING, TextPart, decode
from epp.plugins.media import MediaParts
from epp.plugins.prompts import output_limit

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

    type: str = ""
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
    parsed.model_use = ModelUse.REQUIRED
    return parsed


def parse_unnamed_messages(body: bytes) -> ParsedBody:
    """``messages`` where the model may be named elsewhere than in the body."""
    request = decode(body, _messages)
    if not request.messages:
        raise BadRequestError("messages must be a list of at least one message", param="messages")
    text, media = messages_text(request)
    return ParsedBody(
        request.model,
        request.stream is True,
        text,
        max_output_tokens=output_limit(request.max_tokens),
        media=media,
    )


def parse_count(body: bytes) -> ParsedBody:
    """``messages/count_tokens``: nothing is computed, so nothing is required and no prompt is known."""
    try:
        return ParsedBody(decode(body, _count).model, model_use=ModelUse.OPTIONAL)
    except BadRequestError:
        return ParsedBody()


def messages_text(request: MessagesBody) -> tuple[bytes, list[Medium] | None]:
    """UTF-8 text in chat template order (tools, system prompt, then role and content of each message), and
    its media.
    """
    writer = _Writer()
    if request.system:
        writer.out.append("system\n")
        writer.add_content(request.system, MAX_BLOCK_DEPTH)
    for message in request.messages or ():
        writer.out += (message.role, "\n")
        writer.add_content(message.content, MAX_BLOCK_DEPTH)
    tools = bytes(request.tools)
    text, media = writer.media.rendered(writer.out, len(tools))
    return tools + text, media


class _Writer:
    """Writes content of any depth as pieces of text."""

    __slots__ = ("media", "out")

    def __init__(self) -> None:
        self.out: list[str] = []
        self.media = MediaParts()

    def add_content(self, content: str | list[Block] | None, depth: int) -> None:
        if isinstance(content, str):
            self.out += (content, "\n")
        elif content and depth:
            for block in content:
                self._add_block(block, depth - 1)

    def _add_block(self, block: Block, depth: int) -> None:
        """Whatever a block has: templates render each kind in some way of their own."""
        for text in (block.text, block.thinking):
            if text is not None:
                self.out += (text, "\n")
        if block.input is not NOTHING:
            self.out += (block.name or "", bytes(block.input).decode("utf-8", "replace"), "\n")
        if isinstance(block.source, Source):
            kind = MediaKind.FILE if block.type == "document" else MediaKind.IMAGE
            self._add_source(block.source, kind, depth)
        elif block.source is not None:
            self.out += (block.source, "\n")
        self.add_content(block.content, depth)

    def _add_source(self, source: Source, kind: MediaKind, depth: int) -> None:
        """Plain text and content as they are; other media by a digest of their data or address."""
        if source.content is not None:
            self.add_content(source.content, depth)
        elif source.type == "text":
            self.out += (source.data or "", "\n")
        elif source.data:
            self.media.add(kind, source.data, self.out, is_data=True)
        elif reference := source.url or source.file_id:
            self.media.add(kind, reference, self.out)
