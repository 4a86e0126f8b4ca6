"""Understand requests and responses of the OpenAI APIs.

The body is decoded once and never changed: the model server receives the bytes the client sent. Of a request
the picker learns its model, whether it streams, its prompt as text or tokens, its output limit and its cache
salt; of a response, token usage and the number of events. What a model server would judge better is not
refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import msgspec

from dataplane.errors import BadRequestError
from dataplane.headers import Headers
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import ParsedBody
from epp.plugins.openai_body import (
    NOTHING,
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    ResponsesBody,
    chat_text,
    decode,
)
from epp.plugins.openai_usage import UsageReader

MAX_REMEMBERED_PATHS: Final = 256
"""Paths whose API is remembered; the memory starts over beyond."""

MAX_TOKEN_ID: Final = (1 << 32) - 1

_chat: Final = msgspec.json.Decoder(ChatBody)
_completion: Final = msgspec.json.Decoder(CompletionBody)
_embedding: Final = msgspec.json.Decoder(EmbeddingBody)
_responses: Final = msgspec.json.Decoder(ResponsesBody)

Prompt = str | list[str | int | list[int]]


def parse_chat(body: bytes) -> ParsedBody:
    """``chat/completions``: at least one message is required."""
    chat = decode(body, _chat)
    if not chat.messages:
        raise BadRequestError("messages must be a list of at least one message", param="messages")
    limit = chat.max_completion_tokens
    return ParsedBody(
        _model(chat.model),
        chat.stream is True,
        chat_text(chat.tools, chat.messages),
        max_output_tokens=_limit(limit if limit is not None else chat.max_tokens),
        cache_salt=chat.cache_salt or "",
    )


def parse_completion(body: bytes) -> ParsedBody:
    """``completions``: the prompt is a text, a list of texts or a list of token ids."""
    completion = decode(body, _completion)
    if completion.prompt is None:
        raise BadRequestError("prompt is required: a text, texts or token ids", param="prompt")
    parsed = ParsedBody(
        _model(completion.model),
        completion.stream is True,
        max_output_tokens=_limit(completion.max_tokens),
        cache_salt=completion.cache_salt or "",
    )
    if list in _kinds(completion.prompt):
        raise BadRequestError("prompt cannot be a list of token lists; send one request each", param="prompt")
    _set_prompt(parsed, completion.prompt, "prompt")
    return parsed


def parse_image(body: bytes) -> ParsedBody:
    """``images/generations``: the prompt is required."""
    image = decode(body, _completion)
    if image.prompt is None:
        raise BadRequestError("prompt is required: a text", param="prompt")
    parsed = ParsedBody(_model(image.model), image.stream is True)
    _set_prompt(parsed, image.prompt, "prompt")
    return parsed


def parse_embedding(body: bytes) -> ParsedBody:
    """``embeddings``: the input is a text, texts, token ids or lists of token ids."""
    embedding = decode(body, _embedding)
    if embedding.input is None:
        raise BadRequestError("input is required: a text, texts or token ids", param="input")
    parsed = ParsedBody(_model(embedding.model), cache_salt=embedding.cache_salt or "")
    _set_prompt(parsed, embedding.input, "input")
    return parsed


def parse_responses(body: bytes) -> ParsedBody:
    """``responses``: the input is a text or a list of items."""
    responses = decode(body, _responses)
    if responses.input is None:
        raise BadRequestError("input is required: a text or a list of items", param="input")
    parsed = _conversation(responses)
    if isinstance(responses.input, str):
        parsed.prompt_text += responses.input.encode("utf-8", "surrogatepass")
    else:
        parsed.prompt_text += chat_text(NOTHING, responses.input)
    parsed.model = _model(responses.model)
    return parsed


def parse_conversation(body: bytes) -> ParsedBody:
    """``conversations``: a list of items; this API has no model of its own."""
    conversation = decode(body, _responses)
    if conversation.items is None:
        raise BadRequestError("items is required: a list of items", param="items")
    parsed = _conversation(conversation)
    parsed.prompt_text += chat_text(NOTHING, conversation.items)
    return parsed


def _conversation(body: ResponsesBody) -> ParsedBody:
    """What both have; the text begins with tools and instructions."""
    instructions = (body.instructions or "").encode("utf-8", "surrogatepass")
    return ParsedBody(
        body.model,
        body.stream is True,
        bytes(body.tools) + instructions,
        max_output_tokens=_limit(body.max_output_tokens),
        cache_salt=body.cache_salt or "",
    )


def _model(name: str) -> str:
    if not name:
        raise BadRequestError("model not found in request body", param="model")
    return name


def _limit(tokens: int | None) -> int | None:
    """A usable limit; engines give negative numbers meanings of their own."""
    return tokens if tokens is not None and tokens >= 0 else None


def _kinds(prompt: Prompt) -> set[type]:
    return {str} if isinstance(prompt, str) else set(map(type, prompt))


def _set_prompt(parsed: ParsedBody, prompt: Prompt, field: str) -> None:
    """Store a prompt in the form that suits it. ``BadRequestError`` for mixed or impossible items."""
    if isinstance(prompt, str):
        parsed.prompt_text = prompt.encode("utf-8", "surrogatepass")
        return
    kinds = _kinds(prompt)
    if kinds == {str}:
        texts = [str(text).encode("utf-8", "surrogatepass") for text in prompt]
        if len(texts) == 1:
            parsed.prompt_text = texts[0]
        else:
            parsed.batch = texts
    elif kinds == {int}:
        parsed.prompt_tokens = [int(t) for t in prompt if isinstance(t, int)]
        _check_tokens(parsed.prompt_tokens, field)
    elif kinds == {list}:
        lists = [tokens for tokens in prompt if isinstance(tokens, list)]
        for tokens in lists:
            _check_tokens(tokens, field)
        parsed.batch = [b"".join(t.to_bytes(4, "little") for t in tokens) for tokens in lists]
    elif kinds:
        raise BadRequestError(f"{field} mixes texts and token ids", param=field)


def _check_tokens(tokens: list[int], field: str) -> None:
    if tokens and (min(tokens) < 0 or max(tokens) > MAX_TOKEN_ID):
        raise BadRequestError(f"{field} has a token id outside 0 to {MAX_TOKEN_ID}", param=field)


_APIS: Final[dict[str, Callable[[bytes], ParsedBody]]] = {
    "chat/completions": parse_chat,
    "completions": parse_completion,
    "embeddings": parse_embedding,
    "responses": parse_responses,
    "conversations": parse_conversation,
    "chat/completions/render": parse_chat,
    "completions/render": parse_completion,
    "images/generations": parse_image,
}


class OpenAIParser:
    """Parses the OpenAI APIs; a path it does not know is read as completions."""

    info: ClassVar = PluginInfo("openai-parser")
    claims: ClassVar[Sequence[str]] = tuple(_APIS)

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._by_path: dict[str, Callable[[bytes], ParsedBody]] = {}

    def parse(self, headers: Headers, path: str, body: bytes) -> ParsedBody:
        """Decode the body as the API of ``path``."""
        read = self._by_path.get(path)
        if read is None:
            read = _api(path)
            if len(self._by_path) >= MAX_REMEMBERED_PATHS:
                self._by_path.clear()
            self._by_path[path] = read
        return read(body)

    def response_reader(self, streaming: bool) -> UsageReader:
        """Reads usage; with ``streaming``, counts events too."""
        return UsageReader(streaming)


def _api(path: str) -> Callable[[bytes], ParsedBody]:
    """The API whose name is the longest whole-segment suffix of the path."""
    segments = f"/{path.partition('?')[0].strip('/')}"
    matching = [name for name in _APIS if segments.endswith(f"/{name}")]
    return _APIS[max(matching, key=len)] if matching else parse_completion
