"""The OpenAI SDK talks to a replica: synchronous, asynchronous, streaming, embeddings, errors."""

import asyncio
import math
from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from simulator.app import Fleet
from tests.simulator.driving import running_fleet

LONG = "Tell me about points and trains. " * 20


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with running_fleet(served_model_name=["base", "alias"], lora_modules=[]) as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[AsyncOpenAI]:
    replica = fleet.replicas[0]
    url = f"http://{replica.address}:{replica.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


async def test_chat_answers_with_exact_usage(client: AsyncOpenAI):
    answer = await client.chat.completions.create(
        model="base",
        messages=[{"role": "user", "content": "abcdefgh"}],
        max_completion_tokens=5,
        extra_body={"ignore_eos": True},
    )
    assert (answer.object, answer.model, answer.choices[0].finish_reason) == (
        "chat.completion",
        "base",
        "length",
    )
    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].message.content or "") == 20
    usage = answer.usage
    assert usage is not None
    # Role marker, two tokens of text, end marker, the assistant's marker.
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 5, 10)


async def test_repeated_prompt_reports_cached_tokens(client: AsyncOpenAI):
    cached = []
    for _ in range(2):
        answer = await client.chat.completions.create(
            model="base", messages=[{"role": "user", "content": LONG}], max_tokens=1
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
    prompt = answer.usage.prompt_tokens
    assert cached == [0, (prompt - 1) // 16 * 16]


async def test_next_turn_finds_prompt_and_answer_in_the_cache(client: AsyncOpenAI):
    history = [{"role": "user", "content": LONG}]
    first = await client.chat.completions.create(
        model="base",
        messages=history,  # type: ignore[arg-type]
        max_tokens=200,
        extra_body={"ignore_eos": True},
    )
    history += [
        {"role": "assistant", "content": first.choices[0].message.content or ""},
        {"role": "user", "content": "Go on."},
    ]
    second = await client.chat.completions.create(
        model="base",
        messages=history,  # type: ignore[arg-type]
        max_tokens=1,
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    computed = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == computed // 16 * 16


async def test_stream_has_role_first_text_reason_and_usage(client: AsyncOpenAI):
    body = {"messages": [{"role": "user", "content": "hi"}], "model": "alias", "max_tokens": 4}
    whole = await client.chat.completions.create(**body, extra_body={"ignore_eos": True})  # type: ignore[call-overload]
    stream = await client.chat.completions.create(
        **body,  # type: ignore[call-overload]
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    assert [len(chunk.choices) for chunk in chunks] == [1, 1, 1, 1, 1, 0]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, None, None, "length"]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 4
    assert {(chunk.id, chunk.model, chunk.object) for chunk in chunks} == {
        (chunks[0].id, "alias", "chat.completion.chunk")
    }


async def test_text_completions_have_every_prompt_and_choice(client: AsyncOpenAI):
    answer = await client.completions.create(
        model="base", prompt=["one", "two"], n=2, max_tokens=3, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in answer.choices}) == 4
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 12)


async def test_streamed_text_completions_interleave_choices(client: AsyncOpenAI):
    stream = await client.completions.create(
        model="base", prompt="one", n=3, max_tokens=2, stream=True, extra_body={"ignore_eos": True}
    )
    chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].index for chunk in chunks] == [0, 1, 2, 0, 1, 2]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 3 + ["length"] * 3


async def test_token_ids_are_a_prompt(client: AsyncOpenAI):
    for prompt in ([1, 2, 3], [[1, 2, 3]]):
        answer = await client.completions.create(model="base", prompt=prompt, max_tokens=1)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 3


async def test_embeddings_are_unit_vectors_that_follow_from_the_text(client: AsyncOpenAI):
    answer = await client.embeddings.create(model="base", input=["one", "two", "one"], dimensions=8)
    vectors = [item.embedding for item in answer.data]
    assert [len(vector) for vector in vectors] == [8, 8, 8]
    assert vectors[0] == vectors[2] != vectors[1]
    assert math.hypot(*vectors[0]) == pytest.approx(1.0, abs=1e-6)
    assert answer.usage.prompt_tokens == 3
    plain = await client.embeddings.create(model="base", input="one", dimensions=8, encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(vectors[0], abs=1e-6)


async def test_models_are_listed_under_every_name(client: AsyncOpenAI):
    listed = await client.models.list()
    assert [model.id for model in listed.data] == ["base", "alias"]


async def test_unknown_model_and_long_prompt_raise_the_sdks_errors(client: AsyncOpenAI):
    with pytest.raises(openai.NotFoundError, match="`other` does not exist"):
        await client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError, match="The context holds 131072 tokens"):
        await client.completions.create(model="base", prompt="x", max_tokens=200_000)


async def test_synchronous_client_gets_answers_and_streams(fleet: Fleet):
    replica = fleet.replicas[0]

    def talk() -> tuple[str, str]:
        with OpenAI(base_url=f"http://{replica.address}:{replica.port}/v1", api_key="none") as client:
            body = {"model": "base", "prompt": "synchronous", "max_tokens": 6}
            extra = {"ignore_eos": True}
            whole = client.completions.create(**body, extra_body=extra)  # type: ignore[call-overload]
            stream = client.completions.create(**body, stream=True, extra_body=extra)  # type: ignore[call-overload]
            return whole.choices[0].text, "".join(chunk.choices[0].text for chunk in stream)

    whole, streamed = await asyncio.to_thread(talk)
    assert (len(whole), streamed) == (24, whole)
