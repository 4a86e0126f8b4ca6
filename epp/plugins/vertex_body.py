"""Requests and answers of Vertex AI's prediction service: JSON of another API, wrapped in messages.

A request is ``{endpoint = 1, http_body = 2}``, an answer is the same kind of body, ``{content_type = 1,
data = 2}``, once or many times. What the data are is told by what is in them: the endpoint decides, not the
method.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.payload.anthropic_usage import AnthropicUsageReader
from dataplane.payload.openai_usage import UsageReader
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import ParsedBody
from epp.plugins.anthropic_body import parse_unnamed_messages
from epp.plugins.grpc_frames import FRAME_HEADER_BYTES, FrameReader, check_single_frame, invalid
from epp.plugins.json_body import NOTHING, decode
from epp.plugins.openai_api import parse_unnamed_chat, parse_unnamed_completion
from epp.plugins.protobuf_wire import BYTES, WireError, fields

_HTTP_BODY: Final = 2
_CONTENT_TYPE: Final = 1
_DATA: Final = 2


class Outline(msgspec.Struct, gc=False):
    """The fields that tell which API a body belongs to."""

    anthropic_version: msgspec.Raw = NOTHING
    messages: msgspec.Raw = NOTHING
    prompt: msgspec.Raw = NOTHING
    model: str = ""


_outline: Final = msgspec.json.Decoder(Outline)


def parse_chat_completions(body: bytes) -> ParsedBody:
    """``ChatCompletions``: the data are a chat request of the OpenAI API."""
    return parse_unnamed_chat(_http_body(body)[1])


def parse_raw_predict(body: bytes) -> ParsedBody:
    """``RawPredict``: anything; understood are messages, chats and completions in JSON."""
    content_type, data = _http_body(body)
    if content_type and b"json" not in content_type.lower():
        return ParsedBody()
    outline = decode(data, _outline)
    if outline.anthropic_version is not NOTHING:
        return parse_unnamed_messages(data)
    if outline.messages is not NOTHING:
        return parse_unnamed_chat(data)
    if outline.prompt is not NOTHING:
        return parse_unnamed_completion(data)
    return ParsedBody(outline.model)


def parse_stream_raw_predict(body: bytes) -> ParsedBody:
    """``StreamRawPredict``: the same, and the answer is a stream."""
    parsed = parse_raw_predict(body)
    parsed.stream = True
    return parsed


def _http_body(body: bytes) -> tuple[bytes, bytes]:
    """Content type and data of a request. ``BadRequestError`` when it is none."""
    check_single_frame(body)
    try:
        spans = _spans(body, FRAME_HEADER_BYTES, len(body))
        inner = _spans(body, *spans.get(_HTTP_BODY, (0, 0)))
    except WireError as error:
        raise invalid(error) from None
    type_span, data_span = inner.get(_CONTENT_TYPE, (0, 0)), inner.get(_DATA, (0, 0))
    return body[type_span[0] : type_span[1]], body[data_span[0] : data_span[1]]


def _spans(data: bytes, start: int, end: int) -> dict[int, tuple[int, int]]:
    """Where the last field of each number is that holds bytes."""
    return {number: (a, b) for number, kind, a, b in fields(data, start, end) if kind == BYTES}


class VertexUsageReader:
    """Reads one answer, chunk by chunk: the data of all messages are one body."""

    __slots__ = ("_anthropic", "_frames", "_openai", "events")

    def __init__(self, streaming: bool) -> None:
        self.events = 0
        self._frames = FrameReader()
        self._openai = UsageReader(streaming)
        self._anthropic = AnthropicUsageReader(streaming)

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        for message in self._frames.feed(chunk):
            try:
                start, end = _spans(message, 0, len(message)).get(_DATA, (0, 0))
            except WireError:
                continue  # the message of some other method
            self._openai.feed(message[start:end])
            self._anthropic.feed(message[start:end])
            self.events = self._openai.events

    def finish(self) -> Usage | None:
        """Usage found, None if there was none. The body has ended or broken off."""
        openai, anthropic = self._openai.finish(), self._anthropic.finish()
        self.events = self._openai.events
        return anthropic or openai
