"""When a server that renders prompts is asked, and when it is left alone."""

import asyncio
import logging

import pytest

from dataplane.render_client import (
    FAILURES_TO_PAUSE,
    LONGEST_PAUSE_S,
    MAX_WAITING,
    UNKNOWN_PATH_S,
    RenderClient,
    RenderError,
)
from tests.support.clock import ManualClock

CHAT, TEXTS = "/v1/chat/completions/render", "/v1/completions/render"


class Server:
    """Answers as told: a status, or an exception; None = never."""

    def __init__(self) -> None:
        self.says: int | Exception | None = 200
        self.asked = 0

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        if self.says is None:
            await asyncio.Event().wait()
        if isinstance(self.says, Exception):
            raise self.says
        assert self.says is not None
        return self.says, b"answer"

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(server: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> RenderClient:
    made = RenderClient("http://render:8000", clock)
    monkeypatch.setattr(made, "_poster", server)
    return made


async def fail(client: RenderClient, path: str = CHAT, timeout_s: float = 5.0) -> str:
    """Why there is no answer."""
    with pytest.raises(RenderError) as caught:
        await client.ask(path, b"{}", timeout_s)
    return str(caught.value)


async def test_an_answer_is_handed_on(client: RenderClient):
    assert await client.ask(CHAT, b"{}", 5.0) == b"answer"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (None, "no answer within 0.001 s"),
        (ConnectionRefusedError(111, "refused"), "[Errno 111] refused"),
        (503, "status 503"),
    ],
)
async def test_troubles_of_the_server_lead_to_a_pause_that_grows(
    client: RenderClient, server: Server, clock: ManualClock, says: int | Exception | None, why: str
):
    server.says = says
    for _ in range(FAILURES_TO_PAUSE):
        assert client.may_ask(CHAT)
        assert await fail(client, timeout_s=0.001) == why
    for pause_s in (1.0, 2.0, 4.0):
        assert not client.may_ask(CHAT)
        assert client.describe()["pausedSeconds"] == pause_s
        clock.advance(pause_s - 0.001)
        assert not client.may_ask(CHAT)
        clock.advance(0.001)
        assert client.may_ask(CHAT)
        await fail(client, timeout_s=0.001)
    for _ in range(20):
        clock.advance(LONGEST_PAUSE_S)
        assert client.may_ask(CHAT)
        await fail(client, timeout_s=0.001)


async def test_after_a_pause_one_question_tries_and_its_answer_ends_the_pause(
    client: RenderClient, server: Server, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    server.says = 500
    for _ in range(FAILURES_TO_PAUSE):
        await fail(client)
    clock.advance(1.0)
    server.says = None
    trial = asyncio.create_task(client.ask(CHAT, b"{}", 60.0))
    await asyncio.sleep(0)
    assert not client.may_ask(CHAT), "one is trying"
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    server.says = 200
    await client.ask(CHAT, b"{}", 5.0)
    assert client.may_ask(CHAT)
    assert client.describe()["failuresInARow"] == 0
    said = [record.getMessage() for record in caplog.records]
    begins, ends = said
    assert begins.startswith(
        "http://render:8000 does not render prompts (3 failures in a row); it is not asked"
    )
    assert ends == "http://render:8000 renders prompts again"


async def test_a_refused_prompt_is_no_trouble_of_the_server(client: RenderClient, server: Server):
    server.says = 400
    for _ in range(10):
        assert await fail(client) == "status 400"
    assert client.may_ask(CHAT)


async def test_an_unknown_path_is_left_alone_for_a_while(
    client: RenderClient, server: Server, clock: ManualClock
):
    server.says = 404
    await fail(client, CHAT)
    assert not client.may_ask(CHAT)
    assert client.may_ask(TEXTS)
    assert client.describe()["unknownPaths"] == [CHAT]
    clock.advance(UNKNOWN_PATH_S)
    assert client.may_ask(CHAT)


async def test_only_so_many_wait_at_a_time(client: RenderClient, server: Server):
    server.says = None
    waiting = [asyncio.create_task(client.ask(CHAT, b"{}", 60.0)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    assert client.describe()["underWay"] == MAX_WAITING
    assert not client.may_ask(CHAT)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert client.may_ask(CHAT)
