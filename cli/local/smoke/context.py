"""What every smoke check works with: the running gateway, an HTTP client, and a few ways to ask."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from cli.local.gateway import Gateway

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


class Pool(Protocol):
    """As much of a pool as checks need."""

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> Sequence[str]:
        """Served by the model servers."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Models clients may ask for: those above, then those that a rewrite turns into one of them."""
        ...

    @property
    def objects(self) -> Sequence[Mapping[str, Any]]:
        """Documents of objectives and rewrites."""
        ...

    @property
    def fail_open(self) -> bool: ...

    @property
    def replicas(self) -> int: ...

    @property
    def metrics_port(self) -> int:
        """The picker's."""
        ...

    @property
    def simulator_admin_port(self) -> int: ...


class Target(Protocol):
    """A running gateway."""

    @property
    def url(self) -> str:
        """Where clients connect."""
        ...

    @property
    def admin_port(self) -> int:
        """Envoy's."""
        ...

    @property
    def max_body_bytes(self) -> int: ...

    @property
    def pools(self) -> Sequence[Pool]: ...

    async def picker_pid(self, pool: str) -> int | None:
        """Process id of a pool's picker while it runs."""
        ...


class GatewayTarget:
    """A gateway from one file."""

    def __init__(self, gateway: Gateway) -> None:
        self.url = gateway.plan.url
        self.admin_port = gateway.plan.admin_port
        self.max_body_bytes = gateway.plan.max_body_bytes
        self.pools: Sequence[Pool] = gateway.plan.pools
        self._children = gateway.children

    async def picker_pid(self, pool: str) -> int | None:
        """Process id of a pool's picker while it runs."""
        return self._children[f"epp-{pool}"].pid


class Context:
    """Shared by all checks of a run."""

    def __init__(self, target: Target, session: aiohttp.ClientSession) -> None:
        self.target = target
        self.session = session
        self.url = target.url
        self.protocol: Mapping[str, int] = {}
        """Counters of Envoy's ext_proc filter when the checks began."""

    @property
    def pools(self) -> Sequence[Pool]:
        """The pools of the gateway."""
        return self.target.pools

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
