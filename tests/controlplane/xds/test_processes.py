"""From a document applied through the API to the picker that uses it, and back, with real processes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from controlplane.xds.nodes import SECRET
from controlplane.xds.subscriptions import MAX_TYPES
from dataplane.xds.messages import POOL_OBJECTS, Node, Request
from dataplane.xds.transport import AdsStream, ServerAddress, StreamError
from tests.support.black_box import Pod, Site
from tests.support.certificates import Authority, write_certificate
from tests.support.controlplane import POOL
from tests.support.controlplane_command import Command, Server, serving
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def objective(name: str, priority: int) -> dict[str, Any]:
    return {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": name},
        "spec": {"poolRef": {"name": "pool"}, "priority": priority},
    }


class Plant:
    """A control plane whose parts come and go, and pickers that listen to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = Command(folder)
        self.token = folder / "token"
        self.xds: AbstractContextManager[Server] | None = None
        self.server: Server | None = None
        self._port = ""

    def begin(self) -> None:
        """With an API that is there; what follows is done by an operator."""
        self.token.write_text(self.command.worker_token("pickers", "pool", pool="pool"))
        self.command.ask("users", {"name": "ada", "role": "operator"})
        self.command.environment["POINTSMAN_TOKEN"] = self.command.ask("users/ada/tokens", {"name": "test"})[
            "token"
        ]

    def start_xds(self, *flags: str) -> None:
        """The same port every time."""
        self.xds = self.command.serves(self.folder / "xds.log", "serve-xds", *flags, port=self._port)
        self.server = self.xds.__enter__()
        self._port = self.server.address.rpartition(":")[2]

    def stop_xds(self) -> None:
        """In order."""
        assert self.xds is not None
        self.xds.__exit__(None, None, None)

    def kill_xds(self) -> None:
        assert self.server is not None
        self.server.process.kill()
        self.server.process.wait()

    def picker(self, *more: str, name: str = "picker-1") -> Site:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        flags = [
            *("--xds-server", f"127.0.0.1:{self._port}"),
            *(("--xds-token-file", str(self.token)) if self.token.name else ()),
            *("--xds-cache", str(folder / "last-good"), "--xds-node-id", name, *more),
        ]
        return Site(folder, Pod(), flags=flags)

    async def apply(self, *documents: dict[str, Any]) -> None:
        text = yaml.safe_dump_all([POOL, *documents])
        await asyncio.to_thread(self.command.says, "apply", "-", text=text)

    async def worker(self) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.to_thread(self.command.ask, "workers/picker-1")
        return found


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    plant = Plant(tmp_path)
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, serving(plant.command, tmp_path / "api.log"))
        await asyncio.to_thread(plant.begin)
        await asyncio.to_thread(plant.start_xds)
        try:
            yield plant
        finally:
            plant.kill_xds()


async def objects(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await site.page("/debug/objects"))
    return found


async def until(site: Site, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The page of objects, once it is as it should be."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(found := await objects(site)):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)
    return found


def has(*expected: tuple[str, int]) -> Callable[[dict[str, Any]], bool]:
    return lambda page: [(each["name"], each["priority"]) for each in page["objectives"]] == list(expected)


def fails_with(why: str, page: dict[str, Any]) -> bool:
    failure: str = page["controlPlane"]["failure"]
    return failure.startswith(why)


async def priority(site: Site, name: str) -> int:
    """The priority a request that names this objective gets."""
    await site.ask({"model": "m", "prompt": "x"}, ("x-llm-d-inference-objective", name))
    (record,) = site.picker.decisions.recent(1)
    return int(record["priority"])


def said_of(worker: dict[str, Any], kind: str) -> dict[str, Any]:
    """The last answer about a type; empty before there is one."""
    return next((each for each in worker["types"] if each["type"] == kind), {})


async def answered(plant: Plant, version: str, outcome: str, **also: Any) -> dict[str, Any]:
    """The worker, once the API shows that its last answer is this; an empty version is any."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            worker = await plant.worker()
            last = said_of(worker, POOL_OBJECTS)
            fits = last.get("outcome") == outcome and version in {"", last["version"]}
            if fits and all(worker[name] == value for name, value in also.items()):
                return worker
            await asyncio.sleep(0.2)


async def test_what_is_applied_reaches_a_running_picker_and_its_answer_comes_back(plant: Plant) -> None:
    async with plant.picker() as site:
        assert await priority(site, "gold") == 0
        await plant.apply(objective("gold", 10))
        page = await until(site, has(("gold", 10)))
        assert page["controlPlane"]["connected"] is True
        assert page["objectives"][0]["file"] == "control plane"
        assert await priority(site, "gold") == 10
        used = page["controlPlane"]["versions"][POOL_OBJECTS]
        worker = await answered(plant, used, "ack", connected=True)
        assert (worker["id"], worker["pool"], worker["user"]) == ("picker-1", "pool", "pickers")
        assert await site.sample("pointsman_epp_control_plane_connected") == 1
        await plant.apply(objective("gold", 20), objective("silver", 5))
        await until(site, has(("gold", 20), ("silver", 5)))
        await asyncio.to_thread(plant.stop_xds)


async def test_metrics_tell_what_was_sent_to_whom_and_what_became_of_it(plant: Plant) -> None:
    await asyncio.to_thread(plant.stop_xds)
    plant.start_xds("--metrics-port", "0")
    log = (plant.folder / "xds.log").read_text
    async with asyncio.timeout(PATIENCE_S):
        while "metrics: " not in log():  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(0.05)
    pages = log().rpartition("metrics: ")[2].partition("/metrics")[0]

    async def page(name: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"{pages}/{name}") as answer:
            return await answer.text()

    async def says(*lines: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not set(lines) <= set((text := await page("metrics")).splitlines()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "process_cpu_seconds_total" in text

    async with plant.picker() as site:
        await plant.apply(objective("gold", 10))
        await until(site, has(("gold", 10)))
        await says(
            'pointsman_xds_streams_open{kind="picker"} 1',
            'pointsman_xds_streams_total{kind="picker"} 1',
            'pointsman_xds_pushes_total{type="PoolObjects"} 2',
            'pointsman_xds_acks_total{type="PoolObjects"} 2',
            "pointsman_xds_publish_to_push_seconds_count 1",
        )
        assert await page("readyz") == "ok\n"
    plant.token.write_text("pmt_wrong")
    async with plant.picker(name="picker-2") as site:
        await until(site, lambda page: "UNAUTHENTICATED" in page["controlPlane"]["failure"])
    await says(
        'pointsman_xds_streams_open{kind="picker"} 0',
    )
    assert 'pointsman_xds_streams_refused_total{code="UNAUTHENTICATED"}' in await page("metrics")
    with sqlite3.connect(plant.folder / "state" / "database.sqlite3") as database:
        database.execute("ALTER TABLE core_change RENAME TO away")
    database.close()
    async with asyncio.timeout(PATIENCE_S):
        while await page("readyz") != "not ready: the database fails\n":  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.05)
    assert await page("healthz") == "ok\n"


async def test_a_set_that_a_picker_refuses_is_shown_with_its_paths_and_changes_nothing(plant: Plant) -> None:
    async with plant.picker() as site:
        await plant.apply(objective("gold", 10))
        await until(site, has(("gold", 10)))
        spoil(plant.folder, '"high"')
        worker = await answered(plant, "", "nack")
        told = {"path": "documents[0].spec.priority", "message": "expected int, got str"}
        nack = said_of(worker, POOL_OBJECTS)
        assert nack["problems"] == [told]
        earlier = [each for each in worker["answers"] if each["type"] == POOL_OBJECTS]
        assert nack["inUse"] == earlier[1]["version"]
        page = await objects(site)
        assert has(("gold", 10))(page)
        assert "documents[0].spec.priority: expected int, got str" in page["problems"][0]
        assert await priority(site, "gold") == 10
        spoil(plant.folder, "30")
        used = (await until(site, has(("gold", 30))))["controlPlane"]["versions"][POOL_OBJECTS]
        await answered(plant, used, "ack", connected=True)


async def test_pickers_outlive_the_control_plane_start_without_it_and_find_back(plant: Plant) -> None:
    async with plant.picker() as site:
        await plant.apply(objective("gold", 10))
        await until(site, has(("gold", 10)))
        await asyncio.to_thread(plant.kill_xds)
        await until(site, lambda page: not page["controlPlane"]["connected"])
        assert await priority(site, "gold") == 10
    kept = plant.folder / "picker-1" / "last-good"
    assert kept.stat().st_mode & 0o777 == 0o600
    async with plant.picker() as site:
        assert await priority(site, "gold") == 10
        assert (await objects(site))["controlPlane"]["connected"] is False
        await plant.apply(objective("gold", 11))
        await asyncio.to_thread(plant.start_xds)
        await until(site, has(("gold", 11)))
        assert await priority(site, "gold") == 11


async def test_nobody_else_is_sent_anything(plant: Plant) -> None:
    for said in (plant.command.environment["POINTSMAN_TOKEN"], "pmt_wrong"):
        plant.token.write_text(said)
        async with plant.picker() as site:
            page = await until(site, lambda page: "UNAUTHENTICATED" in page["controlPlane"]["failure"])
            assert page["objectives"] == []


async def test_streams_that_make_no_sense_are_ended_with_the_reason(plant: Plant) -> None:
    assert plant.server is not None
    server = ServerAddress(target=plant.server.address, token_file=str(plant.token))

    async def end_of(*requests: Request) -> str:
        stream = await AdsStream.open(server)
        try:
            for request in requests:
                await stream.send(request)
            with pytest.raises(StreamError) as caught:
                await stream.receive()
            return str(caught.value)
        finally:
            await stream.close()

    for node in (None, Node("", "pool"), Node("a b", "pool"), Node("w", ""), Node("w", "No Pool")):
        assert (await end_of(Request("t", node=node))).startswith("INVALID_ARGUMENT: node.id must be")
    for type_url, cluster, name in (("t", "other", "pool other"), (SECRET, "pool", "gateway pool")):
        said = await end_of(Request(type_url, node=Node("w", cluster)))
        assert said == f"PERMISSION_DENIED: the token is bound to the pool pool, not to the {name}"
    plant.token.write_text(
        await asyncio.to_thread(plant.command.says, "controlplane", "token", "pickers", "any")
    )
    said = await end_of(Request(SECRET, node=Node("w", "public")))
    assert said.startswith("PERMISSION_DENIED: gateway public is sent its private key, so it needs a token")
    greeting = [Request(f"t{number}", node=Node("w", "pool")) for number in range(MAX_TYPES + 1)]
    assert await end_of(*greeting) == f"UNAVAILABLE: a stream subscribes to 1 to {MAX_TYPES} types"


async def test_both_sides_can_show_certificates(plant: Plant) -> None:
    await asyncio.to_thread(plant.stop_xds)
    cert, key = map(str, write_certificate(plant.folder))
    plant.start_xds("--tls-cert", cert, "--tls-key", key, "--client-ca", cert)
    await plant.apply(objective("gold", 10))
    async with plant.picker("--xds-ca", cert, "--xds-cert", cert, "--xds-key", key) as site:
        await until(site, has(("gold", 10)))
    (plant.folder / "picker-1" / "last-good").unlink()
    for without in ((), ("--xds-ca", cert)):
        async with plant.picker(*without) as site:
            page = await until(site, lambda page: "UNAVAILABLE" in page["controlPlane"]["failure"])
            assert page["objectives"] == []


async def test_a_certificate_that_names_a_pool_stands_in_for_a_token(plant: Plant) -> None:
    await asyncio.to_thread(plant.stop_xds)
    authority = Authority(plant.folder)
    cert, key = map(str, authority.issue("server"))
    plant.start_xds("--tls-cert", cert, "--tls-key", key, "--client-ca", str(authority.file))
    await plant.apply(objective("gold", 10))
    token, plant.token = str(plant.token), Path()

    def shows(name: str, *uris: str) -> list[str]:
        own, private = map(str, authority.issue(name, *uris))
        return ["--xds-ca", str(authority.file), "--xds-cert", own, "--xds-key", private]

    pool, other = "spiffe://here/pointsman/pool/pool", "spiffe://here/pointsman/pool/other"
    async with plant.picker(*shows("own", f"{pool}/node/picker-1")) as site:
        await until(site, has(("gold", 10)))
        worker = await answered(plant, "", "ack", connected=True)
        assert worker["user"] == f"certificate {pool}/node/picker-1"
    (plant.folder / "picker-1" / "last-good").unlink()
    bound = "PERMISSION_DENIED: the certificate is bound to the"
    for flags, why in (
        (shows("other", other), f"{bound} pool other, not to the pool pool"),
        (shows("node", f"{pool}/node/picker-2"), f"{bound} node picker-2, not to picker-1"),
        ([*shows("both", other), "--xds-token-file", token], f"{bound} pool other, not to the pool pool"),
        (shows("two", pool, other), "UNAUTHENTICATED: the certificate must have one name spiffe://"),
        (shows("none"), "UNAUTHENTICATED: send authorization: Bearer with the token of a worker"),
    ):
        async with plant.picker(*flags) as site:
            page = await until(site, partial(fails_with, why))
            assert page["objectives"] == []
    Authority(
        plant.folder, "another"
    )  # from now on its certificates are taken, and those from before are not
    async with plant.picker(*shows("old", pool)) as site:
        page = await until(site, lambda page: "UNAVAILABLE" in page["controlPlane"]["failure"])
        assert page["objectives"] == []


def test_flags_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        done = Command(tmp_path).run("controlplane", "serve-xds", *arguments)
        assert done.returncode == 2
        return done.stderr.removeprefix("pointsman controlplane serve-xds: error: ").strip()

    assert "run 'pointsman controlplane init' first" in Command(tmp_path).refusal(
        "controlplane", "serve-xds", "--port", "0"
    )
    Command(tmp_path).begins()
    assert refusal("--port", "70000") == "--port: 70000 is no port"
    assert refusal("--metrics-port", "70000") == "--metrics-port: 70000 is no port"
    assert refusal("--tls-key", "k") == "--tls-cert and --tls-key need one another"
    assert refusal("--client-ca", "c") == "--client-ca needs --tls-cert: certificates are shown over TLS only"
    missing = str(tmp_path / "no")
    assert refusal("--port", "0", "--tls-cert", missing, "--tls-key", missing) == (
        f"--tls-key {missing}: cannot be read (No such file or directory)"
    )


def spoil(folder: Path, priority: str) -> None:
    """Write to the database what no service would: as a newer or older control plane might."""
    with sqlite3.connect(folder / "state" / "database.sqlite3") as database:
        database.execute("UPDATE objectives_inferenceobjective SET priority = " + priority.replace('"', "'"))
        database.execute("INSERT INTO core_change DEFAULT VALUES")
    database.close()
