"""Which strings of a body are text: the shapes of the APIs that models are called by, as one tree.

The tree says of known members what they are; whatever it does not know is text, so a field that an API adds
tomorrow is looked at today. Requests of all APIs share a tree, since no member means text in one and
something else in another: chat, completions, responses, embeddings, Anthropic messages, and contents of
Vertex or Gemini. Answers and the events of streams share another.

Nothing but these is not text:

    names and ids     ``role``, ``type``, ``id``, ``finish_reason``: as long as they look like names; a model
                      server puts any role into its template, so what looks like anything else is text
    media             data URLs, URLs and base64 of images, sound and files, which rules of bodies judge; what
                      decodes to text is text
    what is said again in another form  logprobs, token ids: they go away where their text is changed
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final


class Kind(IntEnum):
    """What a string is."""

    TEXT = 0
    JSON = 1
    """JSON in a string: arguments of tool calls."""
    NAME = 2
    """Text only when it does not look like a name."""
    MEDIA = 3
    """Text only when the object it is in says so."""
    SKIP = 4
    """No text, and nothing below it either."""
    DETAIL = 5
    """No text, but says it again in another form: token ids, logprobs."""
    DATA = 6
    """JSON that a model reads or writes: keys, numbers and literals are text too."""
    FILE = 7
    """A file in base64 or a data URL that decodes to text."""


class Shape:
    """What a value is: as a string, and what its members and items are."""

    __slots__ = ("items", "kind", "members", "other")

    def __init__(self, kind: Kind = Kind.TEXT) -> None:
        self.kind = kind
        self.members: dict[bytes, Shape] = {}
        """By key, in UTF-8."""
        self.items: Shape = self
        self.other: Shape = self
        """Of members that are not known."""


def _leaf(kind: Kind) -> Shape:
    shape = Shape(kind)
    if kind in (Kind.JSON, Kind.NAME, Kind.MEDIA):
        shape.other = _TEXT  # an object where a string is expected
    return shape


def _fill(shape: Shape, members: dict[str, Any]) -> Shape:
    shape.other = _TEXT
    shape.members = {key.encode(): _made(value) for key, value in members.items()}
    return shape


def _made(value: Any) -> Shape:
    return _fill(Shape(), value) if isinstance(value, dict) else value


_TEXT: Final = Shape()
_JSON: Final = _leaf(Kind.JSON)
_NAME: Final = _leaf(Kind.NAME)
_MEDIA: Final = _leaf(Kind.MEDIA)
_SKIP: Final = _leaf(Kind.SKIP)
_DETAIL: Final = _leaf(Kind.DETAIL)
DATA: Final = _leaf(Kind.DATA)

_CACHE_CONTROL: Final = {"type": _NAME, "ttl": _NAME}
_FILE: Final = {
    "file_data": _MEDIA,
    "file_id": _NAME,
    "file_url": _MEDIA,
    "fileUri": _MEDIA,
    "file_uri": _MEDIA,
    "mimeType": _NAME,
    "mime_type": _NAME,
    "data": _MEDIA,
    "format": _NAME,
}
_URL: Final = {"url": _MEDIA, "detail": _NAME, "uuid": _NAME}
_FUNCTION: Final = {"name": _NAME, "arguments": _JSON, "args": DATA, "response": DATA, "id": _NAME}

TURN: Final = Shape()
"""A message, a part of one, an item of a conversation or of an answer; they lie in one another."""
_fill(
    TURN,
    {
        "role": _NAME,
        "name": _NAME,
        "type": _NAME,
        "id": _NAME,
        "status": _NAME,
        "phase": _NAME,
        "object": _NAME,
        "content": TURN,
        "parts": TURN,
        "summary": TURN,
        "thinking": TURN,
        "reasoning": TURN,
        "reasoning_details": TURN,
        "output": TURN,
        "image_url": _URL,
        "video_url": _URL,
        "audio_url": _URL,
        "image_embeds": _MEDIA,
        "input_audio": _FILE,
        "audio": {"id": _NAME, "data": _MEDIA},
        "file": _FILE,
        "file_data": _MEDIA,
        "file_id": _NAME,
        "file_url": _MEDIA,
        "fileData": _FILE,
        "inlineData": _FILE,
        "inline_data": _FILE,
        "detail": _NAME,
        "source": {
            "type": _NAME,
            "media_type": _NAME,
            "data": _MEDIA,
            "url": _MEDIA,
            "file_id": _NAME,
            "content": TURN,
        },
        "data": _MEDIA,
        "signature": _SKIP,
        "thoughtSignature": _SKIP,
        "thought_signature": _SKIP,
        "encrypted_content": _SKIP,
        "cache_control": _CACHE_CONTROL,
        "tool_calls": {
            "id": _NAME,
            "type": _NAME,
            "function": _FUNCTION,
            "custom": {"name": _NAME},
        },
        "function_call": _FUNCTION,
        "functionCall": _FUNCTION,
        "functionResponse": _FUNCTION,
        "function": _FUNCTION,
        "arguments": _JSON,
        "partial_json": _JSON,
        "input": DATA,
        "tool_call_id": _NAME,
        "tool_use_id": _NAME,
        "call_id": _NAME,
        "logprobs": _DETAIL,
        "finish_reason": _NAME,
        "stop_reason": _NAME,
    },
)

_TOOL: Final = Shape()
_fill(
    _TOOL,
    {
        "type": _NAME,
        "name": _NAME,
        "function": {"name": _NAME},
        "functionDeclarations": _TOOL,
        "function_declarations": _TOOL,
        "cache_control": _CACHE_CONTROL,
    },
)

REQUEST: Final = _made(
    {
        "model": _SKIP,
        "messages": TURN,
        "system": TURN,
        "input": TURN,
        "contents": TURN,
        "systemInstruction": TURN,
        "system_instruction": TURN,
        "tools": _TOOL,
        "functions": _TOOL,
        "tool_choice": {"type": _NAME, "name": _NAME, "function": {"name": _NAME}},
        "guided_json": _JSON,
        "response_format": {"type": _NAME, "json_schema": {"name": _NAME}},
        "text": {"format": {"type": _NAME, "name": _NAME}, "verbosity": _NAME},
        "user": _SKIP,
        "safety_identifier": _SKIP,
        "prompt_cache_key": _SKIP,
        "encoding_format": _NAME,
        "previous_response_id": _NAME,
        "service_tier": _NAME,
        "include": _NAME,
        "modalities": _NAME,
        "reasoning": {"effort": _NAME, "summary": _NAME},
        "reasoning_effort": _NAME,
        "audio": {"voice": _NAME, "format": _NAME},
    }
)
"""A request's body."""

_CHOICE: Final = {
    "message": TURN,
    "delta": TURN,
    "content": TURN,
    "finish_reason": _NAME,
    "stop_reason": _NAME,
    "finishReason": _NAME,
    "logprobs": _DETAIL,
    "logprobsResult": _DETAIL,
    "token_ids": _DETAIL,
    "prompt_logprobs": _DETAIL,
    "prompt_token_ids": _DETAIL,
    "safetyRatings": _SKIP,
}

ANSWER: Final = Shape()
"""An answer's body, or the data of an event of a stream."""
_fill(
    ANSWER,
    {
        "id": _NAME,
        "object": _NAME,
        "type": _NAME,
        "role": _NAME,
        "status": _NAME,
        "model": _SKIP,
        "modelVersion": _SKIP,
        "responseId": _SKIP,
        "system_fingerprint": _NAME,
        "service_tier": _NAME,
        "usage": _SKIP,
        "usageMetadata": _SKIP,
        "choices": _CHOICE,
        "candidates": _CHOICE,
        "content": TURN,
        "output": TURN,
        "stop_reason": _NAME,
        "data": {
            "id": _NAME,
            "owned_by": _NAME,
            "root": _NAME,
            "object": _NAME,
            "embedding": _SKIP,
            "b64_json": _MEDIA,
            "url": _MEDIA,
        },
        "prompt_logprobs": _DETAIL,
        "prompt_token_ids": _DETAIL,
        "logprobs": _DETAIL,
        "tools": _TOOL,
        "tool_choice": _NAME,
        "text": {"format": {"type": _NAME, "name": _NAME}, "verbosity": _NAME},
        "truncation": _NAME,
        "previous_response_id": _NAME,
        "delta": TURN,
        "arguments": _JSON,
        "item": TURN,
        "part": TURN,
        "item_id": _NAME,
        "content_block": TURN,
        "message": ANSWER,
        "response": ANSWER,
        "obfuscation": _SKIP,
        "partial_image_b64": _MEDIA,
    },
)
