"""What every smoke check works with: the running gateway, an HTTP client, and a few ways to ask."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from cli.local.gateway import Gateway
from cli.local.plan import PoolPlan

POLL_S = 0.05


class CheckError(Exception):
    """A check found something other than what it expects; the text says what."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Decode the body. Raises `CheckError` when it is not JSON or not declared as such."""
        kind = self.headers.get("content-type", "")
        expect(kind.startswith("application/json"), f"content-type {kind!r}: {self.body[:200]!r}")
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        """Return the OpenAI-style error object. Raises `CheckError` when there is none."""
        error = self.json().get("error")
        complete = isinstance(error, dict) and {"message", "type", "param", "code"} <= error.keys()
        expect(complete, f"no OpenAI error object: {self.body[:200]!r}")
        return dict(error)


class Context:
    """Shared by all checks of a run."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.session = session
        self.url = gateway.plan.url

    @property
    def pools(self) -> tuple[PoolPlan, ...]:
        """The pools of the plan."""
        return self.gateway.plan.pools

    async def post(self, path: str, body: bytes | Mapping[str, Any], **headers: str) -> Answer:
        """POST and read the whole answer; header names are given with underscores."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        async with self.session.post(self.url + path, data=data, headers=named) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def get(self, url: str) -> Answer:
        """GET and read the whole answer."""
        async with self.session.get(url) as answer:
            return Answer(answer.status, answer.headers, await answer.read())


def expect(holds: bool, otherwise: str) -> None:
    """Raise `CheckError` unless it holds."""
    if not holds:
        raise CheckError(otherwise)


def same(what: str, found: object, wanted: object) -> None:
    """Raise `CheckError` unless two values are equal."""
    expect(found == wanted, f"{what} is {found!r}, expected {wanted!r}")


def chat(model: str, content: str, **fields: Any) -> dict[str, Any]:
    """Body of a chat completion with one message."""
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}


def distinct_text(words: int) -> str:
    """Text whose tokens no server has seen."""
    seed = uuid.uuid4().hex
    return " ".join(f"{seed[:8]}{number}" for number in range(words))


async def until(holds: Callable[[], Awaitable[bool]], what: str, timeout_s: float) -> float:
    """Wait until something holds and return how long it took. Raises `CheckError` when it never does."""
    started = time.monotonic()
    while not await holds():
        if time.monotonic() - started > timeout_s:
            raise CheckError(f"after {timeout_s:g} s still not: {what}")
        await asyncio.sleep(POLL_S)
    return time.monotonic() - started
