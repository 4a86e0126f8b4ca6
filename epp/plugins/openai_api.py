"""Parse requests of the OpenAI APIs: one function per API, from body bytes to what the picker knows of it.

What a model server would judge better is not refused here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.errors import BadRequestError
from epp.interfaces.request import ModelUse, ParsedBody
from epp.plugins.json_body import NOTHING, decode
from epp.plugins.openai_body import ChatBody, CompletionBody, EmbeddingBody, Item, ResponsesBody, chat_text
from epp.plugins.prompts import check_tokens, output_limit, token_list_bytes

_chat: Final = msgspec.json.Decoder(ChatBody)
_completion: Final = msgspec.json.Decoder(CompletionBody)
_embedding: Final = msgspec.json.Decoder(EmbeddingBody)
_responses: Final = msgspec.json.Decoder(ResponsesBody)

Prompt = str | list[str | int | list[int]]


def parse_chat(body: bytes) -> ParsedBody:
    """``chat/completions``: a model and at least one message are required."""
    parsed = parse_unnamed_chat(body)
    parsed.model_use = ModelUse.REQUIRED
    return parsed


def parse_unnamed_chat(body: bytes) -> ParsedBody:
    """``chat/completions`` where the model may be named elsewhere than in the body."""
    chat = decode(body, _chat)
    if not chat.messages:
        raise BadRequestError("messages must be a list of at least one message", param="messages")
    limit = chat.max_completion_tokens
    text, media = chat_text(chat.tools, chat.messages)
    return ParsedBody(
        chat.model,
        chat.stream is True,
        text,
        max_output_tokens=output_limit(limit if limit is not None else chat.max_tokens),
        cache_salt=chat.cache_salt or "",
        media=media,
    )


def parse_completion(body: bytes) -> ParsedBody:
    """``completions``: the prompt is a text, texts, token ids or lists of token ids."""
    parsed = parse_unnamed_completion(body)
    parsed.model_use = ModelUse.REQUIRED
    return parsed


def parse_unnamed_completion(body: bytes) -> ParsedBody:
    """``completions`` where the model may be named elsewhere than in the body."""
    completion = decode(body, _completion)
    if completion.prompt is None:
        raise BadRequestError("prompt is required: a text, texts or token ids", param="prompt")
    parsed = ParsedBody(
        completion.model,
        completion.stream is True,
        max_output_tokens=output_limit(completion.max_tokens),
        cache_salt=completion.cache_salt or "",
    )
    _set_prompt(parsed, completion.prompt, "prompt")
    return parsed


def parse_image(body: bytes) -> ParsedBody:
    """``images/generations``: the prompt is required."""
    image = decode(body, _completion)
    if image.prompt is None:
        raise BadRequestError("prompt is required: a text", param="prompt")
    parsed = ParsedBody(image.model, image.stream is True, model_use=ModelUse.REQUIRED)
    _set_prompt(parsed, image.prompt, "prompt")
    return parsed


def parse_embedding(body: bytes) -> ParsedBody:
    """``embeddings``: the input is a text, texts, token ids or lists of token ids."""
    embedding = decode(body, _embedding)
    if embedding.input is None:
        raise BadRequestError("input is required: a text, texts or token ids", param="input")
    parsed = ParsedBody(embedding.model, cache_salt=embedding.cache_salt or "", model_use=ModelUse.REQUIRED)
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
        _add_items(parsed, responses.input)
    parsed.model_use = ModelUse.REQUIRED
    return parsed


def parse_conversation(body: bytes) -> ParsedBody:
    """``conversations``: a list of items; this API has no model of its own."""
    conversation = decode(body, _responses)
    if conversation.items is None:
        raise BadRequestError("items is required: a list of items", param="items")
    parsed = _conversation(conversation)
    _add_items(parsed, conversation.items)
    return parsed


def _conversation(body: ResponsesBody) -> ParsedBody:
    """What both have; the text begins with tools and instructions."""
    instructions = (body.instructions or "").encode("utf-8", "surrogatepass")
    return ParsedBody(
        body.model,
        body.stream is True,
        bytes(body.tools) + instructions,
        max_output_tokens=output_limit(body.max_output_tokens),
        cache_salt=body.cache_salt or "",
    )


def _add_items(parsed: ParsedBody, items: list[Item]) -> None:
    text, parsed.media = chat_text(NOTHING, items, len(parsed.prompt_text))
    parsed.prompt_text += text


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
        check_tokens(parsed.prompt_tokens, field)
    elif kinds == {list}:
        lists = [tokens for tokens in prompt if isinstance(tokens, list)]
        for tokens in lists:
            check_tokens(tokens, field)
        parsed.batch = [token_list_bytes(tokens) for tokens in lists]
    elif kinds:
        raise BadRequestError(f"{field} mixes texts and token ids", param=field)
