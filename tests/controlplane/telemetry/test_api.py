"""Telemetry over HTTP and over websockets: what is known, what is new, and who may look."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import redis
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from django.db import connections

from controlplane.core import tokens, users
from controlplane.core.roles import Role
from controlplane.telemetry import consumers, feed
from dataplane.telemetry.summary import FIELD, STREAM
from tests.support.controlplane import client
from tests.support.telemetry import summary


@pytest.fixture
def bus(valkey: str, settings: Any) -> Iterator[redis.Redis]:
    """A Valkey server the control plane listens to."""
    settings.VALKEY_URL = valkey
    feed.stop()
    with redis.Redis.from_url(valkey) as found:
        yield found
    feed.stop()


@pytest.fixture
async def database(transactional_db: None) -> AsyncIterator[None]:
    """A database for tests on a loop, whose thread lets go of it at the end."""
    yield
    await sync_to_async(connections.close_all)()


def publish(bus: redis.Redis, *workers: str, **fields: Any) -> None:
    for worker in workers:
        bus.xadd(STREAM, {FIELD: msgspec.json.encode(summary(worker, **fields))})


def get(path: str, role: Role = Role.VIEWER, **parameters: Any) -> Any:
    return client(role).get(f"/api/v1/telemetry/{path}", parameters)


@pytest.mark.django_db
def test_what_was_said_before_is_known_and_nonsense_is_skipped(bus: redis.Redis) -> None:
    publish(bus, "w1")
    bus.xadd(STREAM, {FIELD: b"no"})
    bus.xadd(STREAM, {"x": b"y"})
    publish(bus, "w2", pool="other")
    found = get("pools").json()
    assert found["configured"]
    assert [item["pool"] for item in found["items"]] == ["other", "pool"]
    shown = get("pools/pool", seconds=60).json()
    assert (shown["pool"], shown["point"]["requestsPerS"], len(shown["points"])) == ("pool", 10.0, 1)
    assert shown["workers"][0]["worker"] == "w1"


@pytest.mark.django_db
def test_without_valkey_nothing_is_known(settings: Any) -> None:
    settings.VALKEY_URL = ""
    assert get("pools").json() == {"configured": False, "items": []}
    assert get("pools/pool").status_code == 404


@pytest.mark.django_db
def test_refusals_of_the_api(bus: redis.Redis) -> None:
    assert get("pools", Role.WORKER).status_code == 403
    assert get("pools/none").status_code == 404
    answer = get("pools/pool", seconds="901")
    assert (answer.status_code, answer.json()["details"][0]["path"]) == (422, "seconds")


def token_of(role: Role) -> str:
    user = users.put(users.SYSTEM, f"ws-{role}", role)
    return tokens.issue(users.SYSTEM, user, f"t{user.tokens.count()}").text


@asynccontextmanager
async def opened(
    path: str = "/ws/telemetry", query: str = "", **more: Any
) -> AsyncIterator[ApplicationCommunicator]:
    from controlplane.asgi import application

    headers = [(name.encode(), value.encode()) for name, value in more.pop("headers", {}).items()]
    scope = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": headers, **more}
    socket = ApplicationCommunicator(application, scope)
    await socket.send_input({"type": "websocket.connect"})
    try:
        yield socket
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait()
    finally:
        socket.stop(exceptions=False)


async def refused(socket: ApplicationCommunicator) -> int:
    assert (await socket.receive_output(5))["type"] == "websocket.accept"
    answer = await socket.receive_output(5)
    assert answer["type"] == "websocket.close"
    code: int = answer["code"]
    return code


async def bearer(role: Role = Role.VIEWER) -> dict[str, str]:
    return {"authorization": f"Bearer {await sync_to_async(token_of)(role)}"}


@pytest.mark.usefixtures("database")
async def test_a_client_gets_a_snapshot_and_then_the_news(bus: redis.Redis) -> None:
    publish(bus, "w1")
    async with opened(query="pool=pool", headers=await bearer()) as socket:
        assert (await socket.receive_output(5))["type"] == "websocket.accept"
        first = json.loads((await socket.receive_output(5))["text"])
        assert (first["type"], len(first["pools"]["pool"]["points"])) == ("snapshot", 1)
        publish(bus, "w2")
        publish(bus, "w3", pool="other")
        while True:
            said = json.loads((await socket.receive_output(5))["text"])
            assert said["type"] == "delta"
            assert set(said["pools"]) <= {"pool"}
            if said["pools"]:
                break
        assert [worker["worker"] for worker in said["pools"]["pool"]["workers"]] == ["w1", "w2"]
        assert consumers.CLIENTS.count == 1
    assert consumers.CLIENTS.count == 0


@pytest.mark.usefixtures("database")
async def test_a_page_is_told_columns_and_then_each_second(bus: redis.Redis) -> None:
    publish(bus, "w1", kv_usage=0.25)
    query = "view=charts&seconds=60&pool=pool"
    async with opened(query=query, headers=await bearer()) as socket:
        assert (await socket.receive_output(5))["type"] == "websocket.accept"
        first = json.loads((await socket.receive_output(5))["text"])
        assert (first["type"], first["seconds"], len(first["total"]["kvUsage"])) == ("snapshot", 60, 60)
        assert 0.25 in first["pools"]["pool"]["kvUsage"]
        then = json.loads((await socket.receive_output(5))["text"])
        assert (then["type"], then["total"]["requestsPerS"]) == ("delta", 10.0)
        assert then["pools"]["pool"]["kvUsage"] == 0.25


@pytest.mark.usefixtures("database")
async def test_who_may_not_look_is_told_why(bus: redis.Redis) -> None:
    async with opened() as socket:
        assert await refused(socket) == consumers.UNAUTHENTICATED
    async with opened(headers={"authorization": "Bearer pmt_no"}) as socket:
        assert await refused(socket) == consumers.UNAUTHENTICATED
    async with opened(headers=await bearer(Role.WORKER)) as socket:
        assert await refused(socket) == consumers.FORBIDDEN
    async with opened(query="seconds=901", headers=await bearer()) as socket:
        assert await refused(socket) == consumers.BAD_REQUEST
    async with opened(query="view=cinema", headers=await bearer()) as socket:
        assert await refused(socket) == consumers.BAD_REQUEST
    with patch.object(consumers, "MAX_CLIENTS", 0):
        async with opened(headers=await bearer()) as socket:
            assert await refused(socket) == consumers.TOO_MANY
    async with opened("/ws/elsewhere") as socket:
        assert (await socket.receive_output(5))["type"] == "websocket.close"
    assert consumers.CLIENTS.count == 0


@pytest.mark.usefixtures("database")
async def test_without_valkey_the_socket_says_so(settings: Any) -> None:
    settings.VALKEY_URL = ""
    async with opened(headers=await bearer()) as socket:
        assert await refused(socket) == consumers.NOT_CONFIGURED


async def test_clients_listen_to_no_layer(settings: Any) -> None:
    assert get_channel_layer(consumers.TelemetryConsumer.channel_layer_alias) is None


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        (b"", False),
        (b"null", False),
        (b"http://localhost:8800", True),
        (b"http://[::1]:8800", True),
        (b"https://evil.example", False),
        (b"http://localhost.evil.example", False),
        (b"http://[", False),
    ],
)
def test_only_pages_of_ours_may_use_a_session(settings: Any, origin: bytes, is_ours: bool) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
    assert consumers._is_ours(origin) is is_ours


@pytest.mark.usefixtures("database")
async def test_a_session_counts_with_its_present_role(bus: redis.Redis) -> None:
    user = await sync_to_async(users.put)(users.SYSTEM, "ada", Role.VIEWER)
    consumer = consumers.TelemetryConsumer()
    consumer.scope = {"user": user, "headers": [(b"origin", b"http://localhost")]}  # type: ignore[assignment]
    actor = await consumer._actor()
    assert actor is not None
    assert (actor.name, actor.role) == ("ada", Role.VIEWER)
    await sync_to_async(users.put)(users.SYSTEM, "ada", Role.WORKER)
    assert (await consumer._actor()) is not None
    found = await consumer._actor()
    assert found is not None
    assert found.role is Role.WORKER
    await user.adelete()
    assert await consumer._actor() is None
    await asyncio.sleep(0)
