"""The metrics port: every page, what it refuses, and that it closes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import numpy as np
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from dataplane.errors import ConfigError
from dataplane.observability.exposition import MetricSet
from dataplane.observability.pages import MAX_CONNECTIONS
from dataplane.plugin.base import TypedName
from epp.admin import AdminPages, AdminServer
from epp.decisions import DecisionQuery
from tests.support.waiting import PATIENCE_S

Get = Callable[[str], Any]


class Dumping:
    """A plugin that shows state."""

    name = TypedName("approx-prefix-cache-producer", "prefix")

    def dump_state(self) -> object:
        return {"blocks": np.int64(3), "share": np.float64(0.5), "odd": {1, 2} - {2}}


class Failing:
    """A plugin whose state cannot be shown."""

    name = TypedName("token-producer", "tokens")

    def dump_state(self) -> object:
        raise LookupError("gone")


class Silent:
    """A plugin without state."""

    name = TypedName("queue-scorer", "queue")


class Foreign(Collector):
    """A collector of prometheus_client."""

    def collect(self) -> list[Metric]:
        metric = Metric("foreign", "help", "gauge")
        metric.add_sample("foreign", {}, 5)
        return [metric]


class Process:
    """What the pages show, changed by tests."""

    def __init__(self) -> None:
        self.metrics = MetricSet()
        self.metrics.counter("a_total", "help", ("n",)).child("x").inc(3)
        self.reason = ""
        self.limits: list[int] = []
        self.queries: list[DecisionQuery] = []
        self.records = {"id/1": [{"requestId": "id/1"}]}

    def decisions(self, query: DecisionQuery) -> list[int]:
        self.limits.append(query.limit)
        self.queries.append(query)
        return list(range(query.limit))[:2]

    def endpoints(self, limit: int) -> dict[str, int]:
        self.limits.append(limit)
        return {"total": 0}

    def objects(self, limit: int) -> dict[str, int]:
        self.limits.append(limit)
        return {"totalObjectives": 0}

    async def reload(self) -> list[str]:
        return [self.reason] if self.reason else []

    def pages(self) -> AdminPages:
        plugins = {plugin.name.name: plugin for plugin in (Dumping(), Failing(), Silent())}
        return AdminPages(
            metrics=[self.metrics],
            collectors=[Foreign()],
            decisions=self.decisions,
            decision=lambda request_id: self.records.get(request_id, []),
            endpoints=self.endpoints,
            objects=self.objects,
            plugins=lambda: plugins,
            config=lambda: {"warnings": ["w"]},
            reload=self.reload,
            not_ready=lambda: self.reason,
            diagnostics=True,
        )


@pytest.fixture
def process() -> Process:
    """A process to look at."""
    return Process()


@pytest.fixture
async def server(process: Process) -> AsyncIterator[AdminServer]:
    """A server on a free port of loopback."""
    server = AdminServer("127.0.0.1", 0, process.pages())
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def get(server: AdminServer) -> AsyncIterator[Get]:
    """Fetches a path: status and body, decoded when it is JSON."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

        async def fetch(path: str) -> tuple[int, Any]:
            async with session.get(path) as response:
                is_json = response.content_type == "application/json"
                return response.status, await (response.json() if is_json else response.text())

        yield fetch


async def test_metrics_are_text_with_own_foreign_and_process_metrics(server: AdminServer):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}/metrics") as response,
    ):
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = await response.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["a"].samples[0].value == 3
    assert families["foreign"].samples[0].value == 5
    assert families["process_cpu_seconds"].samples[0].value > 0


async def test_health_and_readiness(get: Get, process: Process):
    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz") == (200, "ok\n")
    process.reason = "draining"
    assert await get("/readyz") == (503, "not ready: draining\n")
    assert await get("/healthz") == (200, "ok\n")


async def test_decisions_are_limited(get: Get, process: Process):
    assert await get("/debug/decisions") == (200, {"decisions": [0, 1]})
    for limit in ("1", "0", "9999"):
        assert (await get(f"/debug/decisions?limit={limit}"))[0] == 200
    assert process.limits == [20, 1, 1, 200]
    for limit in ("x", "-1", "1.5", "1" * 10, "\u0661"):
        assert await get(f"/debug/decisions?limit={limit}") == (400, "limit must be a number from 1 to 200\n")


async def test_decisions_are_narrowed_by_the_query(get: Get, process: Process):
    path = "/debug/decisions?model=m%2F1&endpoint=[::1]:80&ending=natural&traced=true&limit=3"
    assert (await get(path))[0] == 200
    assert process.queries == [DecisionQuery(3, "m/1", "[::1]:80", "natural", traced=True)]
    assert await get("/debug/decisions?modle=m") == (
        400,
        "unknown parameter 'modle' (did you mean \"model\"?)\n",
    )
    assert await get("/debug/decisions?x=m") == (
        400,
        "unknown parameter 'x'; there are limit, model, endpoint, ending, traced\n",
    )
    assert await get("/debug/decisions?traced=1") == (400, "traced must be true or false\n")
    assert len(process.queries) == 1


async def test_decisions_of_a_request_are_found_whatever_its_id_looks_like(get: Get):
    assert await get("/debug/decisions/id%2F1") == (200, {"decisions": [{"requestId": "id/1"}]})
    assert await get("/debug/decisions/id/1") == (200, {"decisions": [{"requestId": "id/1"}]})
    assert await get("/debug/decisions/none") == (
        404,
        {"error": "no decision of request 'none' is kept; see --decision-log-size and --explain-sampling"},
    )


async def test_endpoints_and_config_are_shown(get: Get, process: Process):
    assert await get("/debug/endpoints?limit=5") == (200, {"total": 0})
    assert await get("/debug/objects?limit=6") == (200, {"totalObjectives": 0})
    assert process.limits == [5, 6]
    assert await get("/debug/config") == (200, {"warnings": ["w"]})


async def test_state_of_plugins_is_shown_and_one_failure_hides_no_other(get: Get):
    status, body = await get("/debug/plugins/state")
    assert status == 200
    assert body["timestamp"].endswith("Z")
    assert body["plugins"] == {
        "prefix": {
            "name": "prefix",
            "type": "approx-prefix-cache-producer",
            "state": {"blocks": 3, "share": 0.5, "odd": [1]},
        },
        "tokens": {"name": "tokens", "type": "token-producer", "message": "cannot show its state: gone"},
        "queue": {"name": "queue", "type": "queue-scorer", "message": "keeps no state that it shows"},
    }


async def test_the_root_lists_the_pages_and_other_paths_are_unknown(get: Get):
    status, text = await get("/")
    assert status == 200
    assert [line.split()[0] for line in text.splitlines()] == [
        "/metrics",
        "/healthz,",
        "/debug/decisions?limit=20",
        "/debug/decisions/<request",
        "/debug/endpoints?limit=1000",
        "/debug/objects?limit=1000",
        "/debug/plugins/state",
        "/debug/config",
        "/debug/stacks",
        "/debug/profile?seconds=5",
        "/debug/reload",
    ]
    assert (await get("/debug/pprof"))[0] == 404


async def test_a_taken_port_is_said_with_port_and_flag(process: Process):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = AdminServer("127.0.0.1", port, process.pages())
        with pytest.raises(ConfigError) as caught:
            await server.start()
    assert str(caught.value) == (
        f"--metrics-port: cannot listen on port {port} of 127.0.0.1: Address already in use; "
        "free it or choose another one with --metrics-port"
    )
    await server.stop()


async def test_an_address_of_another_machine_is_said(process: Process):
    with pytest.raises(ConfigError, match=r"--metrics-port: cannot listen on port 0 of 192\.0\.2\.1: "):
        await AdminServer("192.0.2.1", 0, process.pages()).start()


async def test_without_a_host_it_listens_on_all_addresses_with_one_port(process: Process):
    server = AdminServer("", 0, process.pages())
    await server.start()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}/healthz") as response,
    ):
        assert response.status == 200
    await server.stop()


async def test_connections_past_the_cap_are_closed_and_room_comes_back(server: AdminServer):
    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.append(writer)
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            return await reader.readline()
        except ConnectionError:
            return b""

    writers: list[asyncio.StreamWriter] = []
    answers = [await ask() for _ in range(MAX_CONNECTIONS)]
    assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}
    assert await ask() == b""
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(PATIENCE_S):
        while await ask() == b"":  # noqa: ASYNC110  # the server's side of a close has no event here
            await asyncio.sleep(0.01)
    for writer in writers[MAX_CONNECTIONS:]:
        writer.close()


async def test_a_client_that_leaves_during_a_long_answer_disturbs_nothing(
    server: AdminServer, process: Process
):
    family = process.metrics.counter("many_total", "help", ("n",), max_series=100_000)
    for i in range(50_000):
        family.child(str(i))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readline()
    writer.transport.abort()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}/healthz") as response,
    ):
        assert response.status == 200


async def test_stopping_closes_the_port_and_leaves_no_task(process: Process):
    before = asyncio.all_tasks()
    server = AdminServer("127.0.0.1", 0, process.pages())
    await server.start()
    port = server.port
    await server.stop()
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert asyncio.all_tasks() == before


async def test_a_reload_answers_with_what_is_wrong(process: Process, server: AdminServer):
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/debug/reload"
        async with session.post(url) as answer:
            assert (answer.status, await answer.json()) == (200, {"refused": []})
        process.reason = "plugins[0].type: unknown"
        async with session.post(url) as answer:
            assert (answer.status, await answer.json()) == (400, {"refused": ["plugins[0].type: unknown"]})
        async with session.get(url) as answer:
            assert answer.status == 405


async def test_a_problem_with_the_odd_name_of_a_file_is_shown(process: Process, server: AdminServer):
    process.reason = "objects/\udcff\n.yaml: \U0001f600"
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{server.port}/debug/reload") as answer,
    ):
        assert (answer.status, await answer.json()) == (400, {"refused": ["objects/?\n.yaml: \U0001f600"]})


async def test_stacks_and_profiles_are_text(get: Get):
    status, text = await get("/debug/stacks")
    assert (status, "thread MainThread\n" in text) == (200, True)
    status, text = await get("/debug/profile?seconds=1")
    assert (status, text.splitlines()[0].rpartition(" ")[2].isdigit()) == (200, True)
    assert await get("/debug/profile?seconds=x") == (400, "seconds must be a number from 1 to 30\n")


async def test_a_second_profile_waits_its_turn(server: AdminServer, get: Get):
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/debug/profile?seconds=30"
        first = asyncio.create_task(session.get(url))
        await get("/healthz")
        status = 200
        while status == 200:
            status, text = await get("/debug/profile?seconds=1")
        assert (status, text) == (409, "another profile is being made; try again when it is done\n")
        first.cancel()
