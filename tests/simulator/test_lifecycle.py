"""Replicas that are killed, hung, revived and reconfigured, over their own port and over the fleet's."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.app import Fleet
from simulator.options import LoraModule, SimOptions
from simulator.replica import Replica, bind
from tests.simulator.driving import AT_ONCE, FOREVER, eventually, running_fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with running_fleet(replicas=3, admin_port=0) as fleet:
        yield fleet


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(replica: Replica, path: str) -> str:
    return f"http://{replica.address}:{replica.port}{path}"


def admin(fleet: Fleet, path: str) -> str:
    return f"http://127.0.0.1:{fleet.admin_port}{path}"


def free_neighbours() -> tuple[socket.socket, socket.socket]:
    """Sockets bound to a free port and to the one after it."""
    while True:
        first = bind("127.0.0.1", 0)
        with contextlib.suppress(OSError):
            return first, bind("127.0.0.1", first.getsockname()[1] + 1)
        first.close()


async def cached(http: aiohttp.ClientSession, replica: Replica) -> int:
    """Cached tokens that a prompt of two blocks finds."""
    async with http.post(
        url(replica, "/v1/completions"), json={"prompt": "a" * 132, "max_tokens": 1}
    ) as response:
        usage = (await response.json())["usage"]
        found: int = usage["prompt_tokens_details"]["cached_tokens"]
        return found


async def test_killed_replica_refuses_connections_and_others_go_on(fleet: Fleet, http: aiohttp.ClientSession):
    victim, other = fleet.replicas[:2]
    async with http.post(url(victim, "/admin/kill")) as response:
        assert (response.status, (await response.json())["state"]) == (200, "killed")
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.get(url(victim, "/health"))
    async with http.get(url(other, "/health")) as response:
        assert response.status == 200


async def test_kill_drops_streams_in_the_middle():
    async with (
        running_fleet(admin_port=0, time_to_first_token=AT_ONCE, inter_token_latency=FOREVER) as fleet,
        aiohttp.ClientSession() as http,
    ):
        replica = fleet.replicas[0]
        body = {"prompt": "a", "max_tokens": 9, "ignore_eos": True, "stream": True}
        async with http.post(url(replica, "/v1/completions"), json=body) as response:
            assert (await response.content.readline()).startswith(b"data: ")
            async with http.post(admin(fleet, "/replicas/0/kill")) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()
        await eventually(lambda: replica.server.engine.cache.used == 0)


async def test_revived_replica_is_at_its_place_with_nothing_cached(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]
    place = (replica.address, replica.port)
    assert [await cached(http, replica) for _ in range(2)] == [0, 32]
    async with http.post(admin(fleet, "/replicas/0/kill")):
        pass
    async with http.post(admin(fleet, "/replicas/0/revive")) as response:
        assert (await response.json())["state"] == "running"
    assert (replica.address, replica.port) == place
    assert [await cached(http, replica) for _ in range(2)] == [0, 32]


async def test_revival_where_another_program_listens_is_a_conflict(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]
    async with http.post(admin(fleet, "/replicas/0/kill")):
        pass
    with bind(replica.address, replica.port) as squatter:
        squatter.listen()
        async with http.post(admin(fleet, "/replicas/0/revive")) as response:
            message = (await response.json())["error"]["message"]
            assert response.status == 409
            assert f"cannot listen on {replica.address}:{replica.port}" in message


async def test_hung_replica_accepts_and_answers_after_it_wakes(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]
    async with http.post(url(replica, "/admin/hang"), json={}) as response:
        assert (await response.json())["state"] == "hung"
    waiting = [
        asyncio.create_task(http.get(url(replica, "/health"))),
        asyncio.create_task(http.get(url(replica, "/metrics"))),
        asyncio.create_task(cached(http, replica)),
    ]
    done, _ = await asyncio.wait(waiting, timeout=0.05)
    assert done == set()
    async with http.post(url(replica, "/admin/hang"), json={"seconds": 0}) as response:
        assert (await response.json())["state"] == "running"
    health, metrics, found = await asyncio.gather(*waiting)
    assert (health.status, metrics.status, found) == (200, 200, 0)
    health.release()
    metrics.release()


async def test_metrics_alone_can_hang(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]

    async def configure(hangs: bool) -> None:
        async with http.post(url(replica, "/admin/config"), json={"hang-metrics": hangs}) as response:
            assert (response.status, (await response.json())["hang-metrics"]) == (200, hangs)

    await configure(True)
    asked = asyncio.create_task(http.get(url(replica, "/metrics")))
    await eventually(lambda: replica.server.metrics_asked == 1)
    assert await cached(http, replica) == 0
    assert not asked.done()
    async with http.get(url(fleet.replicas[1], "/metrics")) as other:
        assert other.status == 200

    await configure(False)
    async with await asked as answer:
        assert "vllm:num_requests_running" in await answer.text()
    async with http.get(admin(fleet, "/replicas")) as response:
        assert [row["metrics_asked"] for row in await response.json()] == [1, 1, 0]


async def test_hang_ends_by_itself(fleet: Fleet, http: aiohttp.ClientSession):
    async with http.post(admin(fleet, "/replicas/0/hang"), json={"seconds": 0.01}) as response:
        assert (await response.json())["state"] == "hung"
    async with http.get(url(fleet.replicas[0], "/health")) as response:
        assert response.status == 200
    assert fleet.replicas[0].state == "running"


async def test_hang_stops_streams_until_revived():
    async with (
        running_fleet(admin_port=0, time_to_first_token=AT_ONCE, inter_token_latency=AT_ONCE) as fleet,
        aiohttp.ClientSession() as http,
    ):
        replica = fleet.replicas[0]
        body = {"prompt": "a", "max_tokens": 50_000, "ignore_eos": True, "stream": True}
        async with http.post(url(replica, "/v1/completions"), json=body) as response:
            await response.content.readline()
            replica.hang(None)
            (one,) = replica.server.engine.running
            generated = one.generated
            await asyncio.sleep(0.02)
            assert one.generated == generated
            await replica.revive()
            await eventually(lambda: one.generated > generated)


async def test_hung_replica_can_be_killed_and_requests_fail(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]
    replica.hang(None)
    waiting = asyncio.create_task(http.get(url(replica, "/health")))
    await asyncio.sleep(0.02)
    async with http.post(admin(fleet, "/replicas/0/kill")) as response:
        assert (await response.json())["state"] == "killed"
    with pytest.raises(aiohttp.ClientError):
        await waiting


async def test_list_of_replicas(fleet: Fleet, http: aiohttp.ClientSession):
    await fleet.replicas[1].kill()
    fleet.replicas[2].hang(None)
    async with http.get(admin(fleet, "/replicas")) as response:
        rows = await response.json()
    assert [(row["index"], row["name"], row["state"]) for row in rows] == [
        (0, "base-0", "running"),
        (1, "base-1", "killed"),
        (2, "base-2", "hung"),
    ]
    assert [row["port"] for row in rows] == [replica.port for replica in fleet.replicas]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", b"", 404),
        ("GET", "/replicas/3/config", b"", 404),
        ("GET", "/replicas/-1/config", b"", 404),
        ("GET", "/replicas/0/kill", b"", 405),
        ("POST", "/replicas/0/explode", b"", 404),
        ("POST", "/replicas/0/hang", b'{"minutes": 1}', 400),
        ("POST", "/replicas/0/hang", b'{"seconds": -1}', 400),
        ("POST", "/replicas/0/hang", b"{", 400),
        ("POST", "/replicas/0/kill", b'{"really": true}', 400),
        ("POST", "/replicas/0/config", b"[]", 400),
        ("POST", "/replicas/0/config", b'{"failure-rate": 1}', 400),
        ("POST", "/replicas/0/config", b'{"seed": 1}', 400),
    ],
    ids=str,
)
async def test_wrong_admin_request_changes_nothing(
    fleet: Fleet, http: aiohttp.ClientSession, method: str, path: str, body: bytes, status: int
):
    before = fleet.replicas[0].server.runtime
    async with http.request(method, admin(fleet, path), data=body or None) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (status, status)
    assert [replica.state for replica in fleet.replicas] == ["running"] * 3
    assert fleet.replicas[0].server.runtime is before


async def test_config_of_one_replica_changes_as_a_whole(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]
    async with http.post(url(replica, "/admin/config"), json={"inter-token-latency": "5ms"}) as response:
        assert (await response.json())["inter-token-latency"] == "5ms"
    bad = {"time-factor-under-load": 2, "prefill-overhead": 3}
    async with http.post(url(replica, "/admin/config"), json=bad) as response:
        assert response.status == 400
        assert "prefill-overhead: 3 is not a duration" in (await response.json())["error"]["message"]
    async with http.get(url(replica, "/admin/config")) as response:
        config = await response.json()
    assert (config["inter-token-latency"], config["time-factor-under-load"]) == ("5ms", 1.0)
    async with http.get(admin(fleet, "/replicas/1/config")) as response:
        assert (await response.json())["inter-token-latency"] == "0s"


async def test_failures_by_rate_type_and_header(fleet: Fleet, http: aiohttp.ClientSession):
    replica = fleet.replicas[0]
    completions = url(replica, "/v1/completions")
    change = {"failure-injection-rate": 100, "failure-types": ["invalid_api_key"]}
    async with http.post(url(replica, "/admin/config"), json=change) as response:
        assert response.status == 200
    async with http.post(completions, json={"prompt": "a"}) as response:
        assert (response.status, (await response.json())["error"]["type"]) == (401, "AuthenticationError")
    async with http.get(url(replica, "/metrics")) as response:
        assert response.status == 200
    async with http.post(url(replica, "/admin/config"), json={"failure-injection-rate": 0}):
        pass
    for value, status in (("503", 503), ("429", 429), ("599", 599), ("200", 400), ("5xx", 400), ("", 400)):
        headers = {"X-Return-Error": value}
        async with http.post(completions, json={"prompt": "a"}, headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (status, status)
    assert replica.server.engine.cache.cached == 0


async def test_failures_are_the_same_for_the_same_seed_and_differ_between_replicas():
    async def run(seed: int) -> list[list[int]]:
        async with (
            running_fleet(replicas=2, seed=seed, failure_injection_rate=50) as fleet,
            aiohttp.ClientSession() as http,
        ):
            seen = []
            for replica in fleet.replicas:
                statuses = []
                for _ in range(30):
                    async with http.post(url(replica, "/v1/completions"), json={"prompt": "a"}) as response:
                        statuses.append(response.status)
                seen.append(statuses)
            return seen

    first = await run(1)
    assert first == await run(1)
    assert first != await run(2)
    assert first[0] != first[1]
    assert {200, 400, 401, 404, 429, 503} == {*first[0], *first[1]}


async def test_endpoints_file_names_every_replica(tmp_path: Path):
    path = tmp_path / "endpoints.yaml"
    path.write_text("old")
    async with running_fleet(
        model="org/Model-7B", replicas=2, endpoints_file=str(path), namespace="here"
    ) as fleet:
        ports = [str(replica.port) for replica in fleet.replicas]
        labels = {
            "llm-d.ai/engine-type": "vllm",
            "llm-d.ai/inference-serving": "true",
            "llm-d.ai/model": "org-model-7b",
        }
        assert yaml.safe_load(path.read_text()) == {
            "endpoints": [
                {
                    "name": f"model-7b-{n}",
                    "namespace": "here",
                    "address": "127.0.0.1",
                    "port": ports[n],
                    "labels": labels,
                }
                for n in range(2)
            ]
        }
    assert os.listdir(tmp_path) == ["endpoints.yaml"]


async def test_addresses_count_up_on_one_port(http: aiohttp.ClientSession):
    async with running_fleet(replicas=3, address_base="127.0.7.254") as fleet:
        assert [replica.address for replica in fleet.replicas] == ["127.0.7.254", "127.0.7.255", "127.0.8.0"]
        assert len({replica.port for replica in fleet.replicas}) == 1
        for replica in fleet.replicas:
            async with http.get(url(replica, "/health")) as response:
                assert response.headers["x-inference-pod"] == replica.name


async def test_hundreds_of_replicas_share_a_process(http: aiohttp.ClientSession):
    async with running_fleet(replicas=400, profile="h100-8b") as fleet:
        for replica in fleet.replicas[::40]:
            async with http.get(url(replica, "/health")) as response:
                assert response.headers["x-inference-pod"] == replica.name
        assert len({replica.port for replica in fleet.replicas}) == 400


async def test_ports_count_up_from_the_first():
    first, second = free_neighbours()
    first_port = first.getsockname()[1]
    first.close()
    second.close()
    async with running_fleet(replicas=2, port=first_port) as fleet:
        assert [replica.port for replica in fleet.replicas] == [first_port, first_port + 1]


async def test_port_in_use_is_told_and_leaves_nothing_open():
    free, squatter = free_neighbours()
    port = squatter.getsockname()[1]
    free.close()
    with squatter:
        squatter.listen()
        fleet = Fleet(SimOptions(model="m", profile="instant", replicas=2, port=port - 1))
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            await fleet.start()
        bind("127.0.0.1", port - 1).close()


async def test_unwritable_endpoints_file_is_told_and_leaves_nothing_open(tmp_path: Path):
    path = tmp_path / "absent" / "endpoints.yaml"
    fleet = Fleet(SimOptions(model="m", profile="instant", port=0, endpoints_file=str(path)))
    with pytest.raises(FileNotFoundError):
        await fleet.start()
    assert fleet.replicas[0].state == "killed"


async def test_adapters_are_models_with_a_cache_of_their_own(http: aiohttp.ClientSession):
    async with running_fleet(lora_modules=[LoraModule("poet", "/poet")]) as fleet:
        replica = fleet.replicas[0]
        async with http.get(url(replica, "/v1/models")) as response:
            models = (await response.json())["data"]
        assert [(m["id"], m["root"], m["parent"]) for m in models] == [
            ("base", "base", None),
            ("poet", "/poet", "base"),
        ]
        assert [await cached(http, replica) for _ in range(2)] == [0, 32]
        body = {"prompt": "a" * 132, "max_tokens": 1, "model": "poet"}
        async with http.post(url(replica, "/v1/completions"), json=body) as response:
            answer = await response.json()
        assert (answer["model"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]) == ("poet", 0)


async def test_same_seed_gives_the_same_answers_from_every_replica_and_fleet(http: aiohttp.ClientSession):
    async def texts(seed: int) -> set[str]:
        async with running_fleet(replicas=2, seed=seed) as fleet:
            found = set()
            for replica in fleet.replicas:
                async with http.post(url(replica, "/v1/completions"), json={"prompt": "a"}) as response:
                    found.add((await response.json())["choices"][0]["text"])
            return found

    first = await texts(1)
    assert len(first) == 1
    assert first == await texts(1)
    assert first != await texts(2)


async def test_cache_salt_separates_tenants(http: aiohttp.ClientSession):
    async with running_fleet() as fleet:
        found = []
        for salt in ("a", "a", "b"):
            body = {"prompt": "a" * 132, "max_tokens": 1, "cache_salt": salt}
            async with http.post(url(fleet.replicas[0], "/v1/completions"), json=body) as response:
                usage = (await response.json())["usage"]
                found.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert found == [0, 32, 0]
