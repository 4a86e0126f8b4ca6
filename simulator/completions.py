"""`/v1/chat/completions` and `/v1/completions`: from a body to sequences, from sequences to a response.

The two differ in their prompts and in the constant parts of their JSON, held by `Shape`; everything else is
one path. A request may have several prompts and several choices for each; every choice is a sequence. When
the client goes away the handler is cancelled, and its sequences leave the engine with it.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from aiohttp import HttpVersion11
from aiohttp.web import StreamResponse

from simulator.call import Call
from simulator.errors import ApiError
from simulator.prompts import Prompt, chat_prompt, text_prompts
from simulator.sequence import Sequence
from simulator.sse import DONE, EventForm, EventStream, Gathered, StreamedChoice
from simulator.text import Answer
from simulator.tokenizer import TOKEN_BYTES, chain_root
from simulator.wire import MAX_CHOICES, ChatRequest, CompletionRequest, Sampling, decode, decoder

EVENT_STREAM = "text/event-stream; charset=utf-8"

_chat_body = decoder(ChatRequest)
_text_body = decoder(CompletionRequest)


class Shape(NamedTuple):
    """Constant parts of the JSON of one endpoint; `%d` is the index of a choice, `%b` its finish reason."""

    id_prefix: str
    whole_object: bytes
    event_object: bytes
    choice_opening: bytes
    choice_closing: bytes
    whole_ending: bytes
    prelude: bytes
    event_opening: bytes
    event_closing: bytes
    event_final: bytes


CHAT = Shape(
    id_prefix="chatcmpl-",
    whole_object=b"chat.completion",
    event_object=b"chat.completion.chunk",
    choice_opening=b'{"index":%d,"message":{"role":"assistant","content":"',
    choice_closing=(
        b'","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],'
        b'"reasoning_content":null},"logprobs":null,"finish_reason":"%b","stop_reason":null}'
    ),
    whole_ending=b',"service_tier":null,"system_fingerprint":null,"prompt_logprobs":null,'
    b'"kv_transfer_params":null}',
    prelude=b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n',
    event_opening=b'{"index":%d,"delta":{"content":"',
    event_closing=b'"},"logprobs":null,"finish_reason":null}]}\n\n',
    event_final=b'"},"logprobs":null,"finish_reason":"%b","stop_reason":null}]}\n\n',
)
TEXT = Shape(
    id_prefix="cmpl-",
    whole_object=b"text_completion",
    event_object=b"text_completion",
    choice_opening=b'{"index":%d,"text":"',
    choice_closing=b'","logprobs":null,"finish_reason":"%b","stop_reason":null,"prompt_logprobs":null}',
    whole_ending=b',"service_tier":null,"system_fingerprint":null,"kv_transfer_params":null}',
    prelude=b"",
    event_opening=b'{"index":%d,"text":"',
    event_closing=b'","logprobs":null,"finish_reason":null,"stop_reason":null}]}\n\n',
    event_final=b'","logprobs":null,"finish_reason":"%b","stop_reason":null}]}\n\n',
)


@dataclass(slots=True)
class Generation:
    """What a request asks for, checked."""

    shape: Shape
    body: Sampling
    prompts: list[Prompt]
    adapter: str
    max_tokens: int | None
    model: bytes
    """Name in the answer, as JSON."""
    identifier: bytes
    """Identifier of the answer, as JSON."""
    created: int

    @property
    def choices(self) -> int:
        """Return the number of sequences."""
        return len(self.prompts) * (self.body.n or 1)


async def chat_completions(call: Call) -> StreamResponse:
    """Answer `/v1/chat/completions`."""
    body = decode(call.body, _chat_body)
    adapter = call.server.adapter_of(body.model)
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return await _answer(call, CHAT, body, [chat_prompt(body.messages, body.tools)], adapter, limit)


async def completions(call: Call) -> StreamResponse:
    """Answer `/v1/completions`."""
    body = decode(call.body, _text_body)
    adapter = call.server.adapter_of(body.model)
    return await _answer(call, TEXT, body, text_prompts(body.prompt, "prompt"), adapter, body.max_tokens)


async def _answer(
    call: Call, shape: Shape, body: Sampling, prompts: list[Prompt], adapter: str, max_tokens: int | None
) -> StreamResponse:
    if body.ignore_eos and max_tokens is None:
        raise ApiError(400, "ignore_eos: needs max_tokens, or the answer would not end", param="ignore_eos")
    generation = Generation(
        shape=shape,
        body=body,
        prompts=prompts,
        adapter=adapter,
        max_tokens=max_tokens,
        model=msgspec.json.encode(adapter or body.model or call.server.names[0]),
        identifier=msgspec.json.encode(shape.id_prefix + call.request_id()),
        created=int(time.time()),
    )
    if generation.choices > MAX_CHOICES:
        raise ApiError(400, f"n: at most {MAX_CHOICES} choices in one request", param="n")
    answers = _plan(call, generation)
    if body.stream:
        return await _stream(call, generation, answers)
    return await _whole(call, generation, answers)


def _plan(call: Call, generation: Generation) -> list[tuple[Prompt, Answer]]:
    """Return prompt and answer of every choice; ApiError 400 when one does not fit into the context."""
    body, server = generation.body, call.server
    context = server.limits.max_model_len
    wanted = generation.max_tokens
    planned: list[tuple[Prompt, Answer]] = []
    for prompt in generation.prompts:
        length = len(prompt.tokens) // TOKEN_BYTES
        if length >= context or length + (wanted or 0) > context:
            asked = f" and {wanted} for the answer" if wanted else ""
            message = f"The context holds {context} tokens; the prompt takes {length}{asked}."
            raise ApiError(400, message, param="max_tokens" if length < context else None)
        for choice in range(body.n or 1):
            answer = server.answers.answer(
                prompt.tokens,
                prompt.last_text,
                limit=context - length,
                wanted=wanted,
                exact=bool(body.ignore_eos),
                variant=choice + MAX_CHOICES * (body.seed or 0),
            )
            planned.append((prompt, answer))
    return planned


def _sequence(
    generation: Generation, planned: tuple[Prompt, Answer], listener: StreamedChoice | Gathered
) -> Sequence:
    prompt, answer = planned
    return Sequence(
        prompt.tokens,
        answer,
        listener,
        root=chain_root(generation.adapter, generation.body.cache_salt or ""),
        adapter=generation.adapter,
        max_tokens=generation.max_tokens,
    )


def _usage(generation: Generation, sequences: list[Sequence]) -> bytes:
    """Return the usage object: each prompt counts once, each choice's tokens count."""
    per_prompt = sequences[:: generation.body.n or 1]
    prompt = sum(sequence.prompt_length for sequence in per_prompt)
    cached = sum(sequence.cached_tokens for sequence in per_prompt)
    generated = sum(sequence.generated for sequence in sequences)
    return (
        b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
        b'"prompt_tokens_details":{"cached_tokens":%d}}'
    ) % (prompt, prompt + generated, generated, cached)


def _head(generation: Generation, kind: bytes) -> bytes:
    return b'{"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
        *(generation.identifier, kind),
        *(generation.created, generation.model),
    )


async def _whole(call: Call, generation: Generation, answers: list[tuple[Prompt, Answer]]) -> StreamResponse:
    gathered = Gathered(len(answers))
    sequences = [_sequence(generation, planned, gathered) for planned in answers]
    call.server.submit(sequences)
    try:
        await gathered.done
    finally:
        call.server.runner.abort(sequences)
    shape = generation.shape
    choices = []
    for index, sequence in enumerate(sequences):
        text, _ = sequence.answer.text(0, sequence.generated)
        reason = sequence.answer.finish_reason.encode()
        choices.append(shape.choice_opening % index + text + shape.choice_closing % reason)
    usage = _usage(generation, sequences)
    head = _head(generation, shape.whole_object)
    return call.json(b"".join((head, b",".join(choices), b'],"usage":', usage, shape.whole_ending)))


async def _stream(call: Call, generation: Generation, answers: list[tuple[Prompt, Answer]]) -> StreamResponse:
    transport = call.request.transport
    response = StreamResponse(headers=call.headers(EVENT_STREAM))
    if transport is None or transport.is_closing():
        return response
    chunked = call.request.version >= HttpVersion11
    stream = EventStream(transport, len(answers), chunked=chunked)
    head = b"data: " + _head(generation, generation.shape.event_object)
    sequences = [
        _sequence(generation, planned, StreamedChoice(stream, _form(generation.shape, head, index)))
        for index, planned in enumerate(answers)
    ]
    if chunked:
        response.enable_chunked_encoding()
    call.server.submit(sequences)
    try:
        await response.prepare(call.request)
        stream.open()
        await stream.done
        rest = stream.take_rest()
        options = generation.body.stream_options
        if options is not None and options.include_usage:
            rest += head + b'],"usage":' + _usage(generation, sequences) + b"}\n\n"
        await response.write_eof(rest + DONE)
    except ConnectionResetError:
        # The client has left and the cancellation of this handler is on its way: aiohttp takes the response
        # for one that cannot be sent any more.
        return response
    finally:
        call.server.runner.abort(sequences)
    return response


def _form(shape: Shape, head: bytes, index: int) -> EventForm:
    return EventForm(
        prelude=head + shape.prelude % index if shape.prelude else b"",
        opening=head + shape.event_opening % index,
        closing=shape.event_closing,
        final=shape.event_final,
    )
