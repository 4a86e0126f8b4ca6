"""Request bodies of the OpenAI API as vLLM takes them: the fields that matter here, any other allowed."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from simulator.errors import ApiError

MAX_CHOICES = 128
"""Most sequences one request may start: prompts times `n`."""

ABSENT = msgspec.Raw(b"")

PositiveOrNull = Annotated[int, Meta(ge=1)] | None
Body = TypeVar("Body")


class StreamOptions(msgspec.Struct):
    """What a stream carries besides its text."""

    include_usage: bool | None = False


class ContentPart(msgspec.Struct):
    """One part of a message: text, or a reference to media."""

    type: str
    text: str | None = None
    image_url: Any = None
    video_url: Any = None
    audio_url: Any = None
    input_audio: Any = None


class Message(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str | list[ContentPart] | None = None
    tool_calls: msgspec.Raw = ABSENT


class Sampling(msgspec.Struct, kw_only=True):
    """What chat and text completions have in common."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = 1
    seed: int | None = None
    ignore_eos: bool | None = False
    cache_salt: str | None = None


class ChatRequest(Sampling, kw_only=True):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_tokens: PositiveOrNull = None
    max_completion_tokens: PositiveOrNull = None
    tools: msgspec.Raw = ABSENT


class CompletionRequest(Sampling, kw_only=True):
    """Body of `/v1/completions`; `prompt` is text, token ids, or a list of either."""

    prompt: str | list[Any]
    max_tokens: PositiveOrNull = 16


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """Body of `/v1/embeddings`."""

    input: str | list[Any]
    model: str | None = None
    dimensions: Annotated[int, Meta(ge=1, le=8192)] | None = None
    encoding_format: str | None = "float"


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of `/tokenize`: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: msgspec.Raw = ABSENT


def decoder(kind: type[Body]) -> "msgspec.json.Decoder[Body]":
    """Return a decoder for a body, to be kept."""
    return msgspec.json.Decoder(kind)


def decode(body: bytes, using: "msgspec.json.Decoder[Body]") -> Body:
    """Decode a request body; ApiError 400 naming the place when it is not what it must be."""
    try:
        return using.decode(body)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        place = path.strip("`").removeprefix("$").removeprefix(".") or None
        raise ApiError(400, f"{place or 'body'}: {text}", param=place) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"The body is not valid JSON: {error}") from error
