"""The official OpenAI client against the gateway: synchronous, asynchronous, streaming; every model."""

import asyncio
from typing import Any

import openai

from cli.local.smoke.context import CheckError, Context, expect, same

QUESTION: list[Any] = [{"role": "user", "content": "Where does this train go?"}]
TOKENS = 24
API_KEY = "unused"


async def sdk_synchronous(context: Context) -> str:
    """A chat completion with the blocking client, for every model."""
    return await asyncio.to_thread(ask_blocking, context.url, all_models(context))


def ask_blocking(url: str, models: list[str]) -> str:
    """Ask each model once."""
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"{url}/v1", api_key=API_KEY, max_retries=0, http_client=http) as client:
        return "; ".join(
            verify(model, client.chat.completions.create(model=model, messages=QUESTION, max_tokens=TOKENS))
            for model in models
        )


async def sdk_asynchronous(context: Context) -> str:
    """Chat completions of all models at the same time."""
    async with asynchronous_client(context) as client:
        models = all_models(context)
        answers = await asyncio.gather(
            *(
                client.chat.completions.create(model=model, messages=QUESTION, max_tokens=TOKENS)
                for model in models
            )
        )
    return "; ".join(verify(model, answer) for model, answer in zip(models, answers, strict=True))


async def sdk_streaming(context: Context) -> str:
    """Streams of all models: several chunks, text, usage at the end."""
    details = []
    async with asynchronous_client(context) as client:
        for model in all_models(context):
            stream = await client.chat.completions.create(
                model=model,
                messages=QUESTION,
                max_tokens=TOKENS,
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
            text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
            usage = chunks[-1].usage
            expect(len(chunks) > 2, f"{model}: {len(chunks)} chunks")
            expect(bool(text), f"{model}: no text")
            expect(usage is not None and usage.completion_tokens > 0, f"{model}: no usage in the last chunk")
            details.append(f"{model}: {len(chunks)} chunks, {len(text)} characters")
    return "; ".join(details)


async def sdk_error(context: Context) -> str:
    """An unknown model is the client's own NotFoundError."""
    async with asynchronous_client(context) as client:
        try:
            await client.chat.completions.create(model="no-such-model", messages=QUESTION)
        except openai.NotFoundError as error:
            same("code", error.code, "model_not_found")
            return f"NotFoundError: {error.message}"
    raise CheckError("no NotFoundError was raised")


def asynchronous_client(context: Context) -> openai.AsyncOpenAI:
    """The asynchronous client, without proxies and retries of its own."""
    return openai.AsyncOpenAI(
        base_url=f"{context.url}/v1",
        api_key=API_KEY,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )


def all_models(context: Context) -> list[str]:
    """Every model name of every pool."""
    return [model for pool in context.pools for model in pool.models]


def verify(model: str, answer: Any) -> str:
    """Check one complete answer and describe it."""
    text, usage = answer.choices[0].message.content, answer.usage
    expect(bool(text), f"{model}: no text")
    same(f"{model}: total_tokens", usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    expect(0 < usage.completion_tokens <= TOKENS, f"{model}: {usage.completion_tokens} completion tokens")
    return f"{model}: {usage.prompt_tokens} + {usage.completion_tokens} tokens"
