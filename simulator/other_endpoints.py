"""The endpoints that generate nothing: embeddings, models, render, tokenize, version, health, metrics."""

import base64
import time
from typing import Any

import msgspec
import numpy as np
import xxhash
from aiohttp.web import Response, StreamResponse

from simulator import metrics, tokenizer
from simulator.call import Call
from simulator.errors import ApiError
from simulator.prompts import chat_prompt, text_prompts
from simulator.sequence import Sequence
from simulator.sse import Gathered
from simulator.text import NoAnswer
from simulator.wire import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    TokenizeRequest,
    decode,
    decoder,
)

VERSION = "pointsman-sim"
STARTED = int(time.time())

_embedding_body = decoder(EmbeddingRequest)
_tokenize_body = decoder(TokenizeRequest)
_chat_body = decoder(ChatRequest)
_completion_body = decoder(CompletionRequest)


async def embeddings(call: Call) -> StreamResponse:
    """Answer `/v1/embeddings`: every input is read by the engine, its vector follows from its tokens."""
    body = decode(call.body, _embedding_body)
    adapter = call.server.adapter_of(body.model)
    if body.encoding_format not in {None, "float", "base64"}:
        raise ApiError(400, "encoding_format: must be float or base64", param="encoding_format")
    prompts = text_prompts(body.input, "input")
    context = call.server.limits.max_model_len
    gathered = Gathered(len(prompts))
    root = tokenizer.chain_root(adapter, "")
    sequences = [
        Sequence(prompt.tokens, NoAnswer(), gathered, root=root, adapter=adapter) for prompt in prompts
    ]
    for index, sequence in enumerate(sequences):
        if sequence.prompt_length > context:
            message = (
                f"input[{index}]: the context holds {context} tokens, it takes {sequence.prompt_length}."
            )
            raise ApiError(400, message, param="input")
    call.server.submit(sequences)
    try:
        await gathered.done
    finally:
        call.server.runner.abort(sequences)
    size = body.dimensions or call.server.options.default_embedding_dimensions
    plain = body.encoding_format != "base64"
    total = sum(sequence.prompt_length for sequence in sequences)
    return call.json(
        msgspec.json.encode(
            {
                "id": f"embd-{call.request_id()}",
                "object": "list",
                "created": int(time.time()),
                "model": adapter or body.model or call.server.names[0],
                "data": [
                    {
                        "index": index,
                        "object": "embedding",
                        "embedding": _vector(prompt.tokens, size, plain=plain),
                    }
                    for index, prompt in enumerate(prompts)
                ],
                "usage": {"prompt_tokens": total, "total_tokens": total, "completion_tokens": 0},
            }
        )
    )


def _vector(tokens: bytes, size: int, *, plain: bool) -> list[float] | str:
    """Return a unit vector of `size` numbers, as a list or as base64 of little-endian 32-bit floats."""
    source = np.random.Generator(np.random.PCG64(xxhash.xxh3_64_intdigest(tokens)))
    vector = source.standard_normal(size)
    vector /= np.linalg.norm(vector)
    if plain:
        numbers: list[float] = vector.tolist()
        return numbers
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


async def tokenize(call: Call) -> StreamResponse:
    """Answer `/tokenize`."""
    body = decode(call.body, _tokenize_body)
    call.server.adapter_of(body.model)
    if body.messages:
        tokens = chat_prompt(body.messages, body.tools).tokens
    elif body.prompt is not None:
        tokens = tokenizer.encode_text(body.prompt)
    else:
        raise ApiError(400, "prompt: give a prompt or messages", param="prompt")
    ids = tokenizer.to_ids(tokens)
    limit = call.server.limits.max_model_len
    return call.json(
        msgspec.json.encode({"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": None})
    )


async def render_chat(call: Call) -> StreamResponse:
    """Answer `/v1/chat/completions/render`: the prompt of a chat as one that generates would take it."""
    body = decode(call.body, _chat_body)
    call.server.adapter_of(body.model)
    tokens = chat_prompt(body.messages, body.tools).tokens
    return call.json(msgspec.json.encode(_rendered(call, tokens, body.model)))


async def render_texts(call: Call) -> StreamResponse:
    """Answer `/v1/completions/render`: a list, since there may be several prompts."""
    body = decode(call.body, _completion_body)
    call.server.adapter_of(body.model)
    prompts = text_prompts(body.prompt, "prompt")
    return call.json(msgspec.json.encode([_rendered(call, prompt.tokens, body.model) for prompt in prompts]))


def _rendered(call: Call, tokens: bytes, model: str | None) -> dict[str, Any]:
    return {
        "request_id": call.request_id(),
        "token_ids": tokenizer.to_ids(tokens),
        "features": None,
        "model": model or call.server.names[0],
    }


async def models(call: Call) -> StreamResponse:
    """Answer `/v1/models`: the base model under each of its names, then the adapters."""
    server = call.server
    entries = [_model(name, server.options.model, None, server.limits.max_model_len) for name in server.names]
    for module in server.adapters.values():
        parent = module.base_model_name or server.names[0]
        entries.append(_model(module.name, module.path or module.name, parent, None))
    return call.json(msgspec.json.encode({"object": "list", "data": entries}))


def _model(name: str, root: str, parent: str | None, max_model_len: int | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": STARTED,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [],
    }


async def version(call: Call) -> StreamResponse:
    """Answer `/version`."""
    return call.json(msgspec.json.encode({"version": VERSION}))


async def health(call: Call) -> StreamResponse:
    """Answer `/health`: 200 and nothing else."""
    return Response(headers=call.headers())


async def show_metrics(call: Call) -> StreamResponse:
    """Answer `/metrics`."""
    text = await call.server.metrics_page()
    return Response(body=text, headers=call.headers(metrics.CONTENT_TYPE))
