"""Pools follow what is wanted, with real processes that only sleep in the place of pickers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.configs.guarding import Guarded
from controlplane.fleet.local import commands, runner
from controlplane.fleet.local.access import ControlPlane, PoolAccess
from controlplane.fleet.local.counts import Counts
from controlplane.fleet.local.database import SourceError
from controlplane.fleet.local.pool import LocalPool
from controlplane.fleet.local.probe import Probe
from controlplane.fleet.local.runner import FleetRunner
from controlplane.fleet.local.usage import usage_of
from controlplane.fleet.local.wanted import Wanted, WantedPool
from controlplane.fleet.specs import Driver
from controlplane.fleet.specs import Ports as WantedPorts
from dataplane.processes import child
from dataplane.processes.ports import Ports
from epp.plugins.endpoint_file import read_endpoint_file
from tests.support.controlplane import ENDPOINTS
from tests.support.waiting import until

CONTROL_PLANE = ControlPlane(server="127.0.0.1:1")
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(autouse=True)
def sleepers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickers sleep; nothing waits for a real interval."""
    monkeypatch.setattr(
        commands, "picker", lambda pool, ports, flags, **_: [*SLEEPER, pool, str(ports.grpc), *flags]
    )
    monkeypatch.setattr(child, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(runner, "POLL_S", 0.01)
    monkeypatch.setattr(runner, "REPORT_S", 0.01)


def wanted(name: str = "a", **ports: int) -> WantedPool:
    return WantedPool(name=name, driver=Driver(type="local", ports=WantedPorts(**ports)))


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Source:
    """A database that says what the test says, and remembers what it is told."""

    def __init__(self, *pools: WantedPool) -> None:
        self.version = 0
        self.pools = list(pools)
        self.is_gone = False
        self.told: dict[str, Any] = {}
        self.good: dict[str, str] = {}
        """Tokens that hold."""
        self.hands_out = True

    def want(self, *pools: WantedPool) -> None:
        self.pools, self.version = list(pools), self.version + 1

    async def marker(self) -> object:
        if self.is_gone:
            raise SourceError("the database is gone")
        return self.version

    async def wanted(self) -> Wanted:
        return Wanted(self.pools)

    async def report(
        self, reports: Mapping[str, Mapping[str, Any]], endpoints: Mapping[str, Sequence[Any]]
    ) -> None:
        if self.is_gone:
            raise SourceError("the database is gone")
        self.told = dict(reports)

    async def tokens(self, held: Mapping[str, str]) -> Mapping[str, str]:
        if not self.hands_out:
            raise SourceError("no token for anybody")
        for pool, text in held.items():
            if not text or self.good.get(pool) != text:
                self.good[pool] = f"{pool}-{len(self.good)}-{self.version}"
        return {pool: self.good[pool] for pool in held}

    async def observe(self, pool: str, guarded: Guarded, counts: Counts) -> None:
        raise AssertionError("nothing is guarded here")

    def pid(self, name: str) -> int | None:
        """The picker's process as it was told."""
        picker = self.told.get(name, {}).get("picker")
        return None if picker is None else picker["pid"]


@asynccontextmanager
async def running(source: Source, folder: Path) -> AsyncIterator[list[str]]:
    said: list[str] = []
    task = asyncio.create_task(FleetRunner(source, folder, CONTROL_PLANE, said.append).run())
    try:
        yield said
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_pools_come_and_go_and_everything_ends_with_the_runner(tmp_path: Path) -> None:
    source = Source(wanted("a"), wanted("b"))
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None and source.pid("b") is not None)
        a, b = source.pid("a"), source.pid("b")
        assert a is not None
        assert b is not None
        source.want(wanted("b"))
        await until(lambda: not is_running(a) and "a" not in source.told)
        await until(lambda: not (tmp_path / "pools/a").exists())
        assert source.pid("b") == b
    assert not is_running(b)
    assert (tmp_path / "pools/b/endpoints.yaml").exists()


async def test_a_killed_picker_comes_back_and_that_is_told(tmp_path: Path) -> None:
    source = Source(wanted())
    async with running(source, tmp_path) as said:
        await until(lambda: source.pid("a") is not None)
        first = source.pid("a")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: source.pid("a") not in {None, first})
        assert source.told["a"]["picker"]["restarts"] == 1
        assert said[0].startswith("a: epp was killed by SIGKILL; starting it again in 0.01 s (log: ")


async def test_without_the_database_everything_goes_on(tmp_path: Path) -> None:
    source = Source(wanted())
    async with running(source, tmp_path) as said:
        await until(lambda: source.pid("a") is not None)
        pid = source.pid("a")
        assert pid is not None
        source.is_gone = True
        await until(lambda: said == ["the database is gone; going on with 1 pools"])
        assert is_running(pid)
        source.is_gone = False
        source.want(wanted("a"), wanted("b"))
        await until(lambda: source.pid("b") is not None)
        assert (source.pid("a"), said[1:]) == (pid, ["the database answers again"])


async def test_a_start_without_the_database_takes_what_was_last_wanted(tmp_path: Path) -> None:
    source = Source(wanted())
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None)
    ports = json.loads((tmp_path / "pools/a/ports.json").read_text())
    source.told, source.is_gone = {}, True
    async with running(source, tmp_path) as said:
        await until(lambda: said == ["the database is gone; going on with 1 pools"])
        source.is_gone = False
        await until(lambda: source.pid("a") is not None)
        assert source.told["a"]["ports"] == ports
    kept = msgspec.json.decode((tmp_path / "wanted.json").read_bytes(), type=Wanted)
    assert kept == Wanted([wanted()])


async def test_tokens_outlive_the_runner_and_one_that_holds_no_more_is_replaced(tmp_path: Path) -> None:
    source, token = Source(wanted()), tmp_path / "pools/a/token"
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None)
        first = token.read_text()
    source.told = {}
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None)
        assert token.read_text() == first == source.good["a"]
        pid = source.pid("a")
        source.good["a"] = "revoked"
        source.want(wanted())
        await until(lambda: token.read_text() not in {first, "revoked"})
        assert (token.read_text(), source.pid("a")) == (source.good["a"], pid)


async def test_a_pool_that_comes_back_at_once_has_its_token_again(tmp_path: Path) -> None:
    source, token = Source(wanted()), tmp_path / "pools/a/token"
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None)
        first = source.pid("a")
        source.want()
        await asyncio.sleep(0.05)
        source.want(wanted())
        await until(lambda: source.pid("a") not in {None, first})
        assert token.read_text() == source.good["a"]


async def test_while_nobody_hands_out_tokens_new_pools_wait_and_others_change_and_go(tmp_path: Path) -> None:
    source = Source(wanted("a"), wanted("b"))
    async with running(source, tmp_path) as said:
        await until(lambda: source.pid("a") is not None and source.pid("b") is not None)
        source.hands_out = False
        source.want(wanted("b"), wanted("c"))
        await until(lambda: "a" not in source.told and "c" in source.told)
        await until(lambda: source.told["c"]["state"] == "failed")
        (problem,) = source.told["c"]["problems"]
        assert problem == "there is no token for its picker yet; the database has to be asked for one"
        # The round that finds it out may have begun before the pool that goes was gone.
        assert re.match(r"no token for anybody; going on with [23] pools$", said[0])
        source.hands_out = True
        await until(lambda: source.pid("c") is not None)
        assert said[-1] == "the database answers again"


async def test_files_of_earlier_versions_do_not_stay(tmp_path: Path) -> None:
    folder = tmp_path / "pools/a"
    folder.mkdir(parents=True)
    for name in ("picker.yaml", "picker.good.yaml", "objects.yaml"):
        (folder / name).write_text("{")
    (folder / "ports.json").write_text('{"grpc": 0, "health": 0, "metrics": 0}')
    source = Source(wanted())
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None)
        assert sorted(path.name for path in folder.iterdir()) == [
            *("endpoints.yaml", "logs", "ports.json", "token")
        ]


async def test_pools_that_went_away_while_nobody_looked_leave_no_files(tmp_path: Path) -> None:
    (tmp_path / "pools/old/logs").mkdir(parents=True)
    source = Source(wanted())
    async with running(source, tmp_path):
        await until(lambda: source.pid("a") is not None)
    assert [path.name for path in (tmp_path / "pools").iterdir()] == ["a"]


@asynccontextmanager
async def one_pool(first: WantedPool, folder: Path) -> AsyncIterator[tuple[LocalPool, list[str]]]:
    said: list[str] = []
    access = PoolAccess(first.name, folder, CONTROL_PLANE)
    access.token = access.token or "pmt_test"
    pool = LocalPool(first, folder, access, Ports(random.Random(1)), said.append)
    task = asyncio.create_task(pool.run())
    try:
        yield pool, said
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_port_that_is_taken_is_told_and_used_once_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with one_pool(wanted(grpc=port), tmp_path / "a") as (pool, said):
            await until(lambda: pool.report(Probe())["state"] == "failed")
            problem = f"driver.ports.grpc: port {port} is in use; configure another, or 0 for a free one"
            assert pool.report(Probe())["problems"] == [problem]
            taken.close()
            await until(lambda: pool.report(Probe())["state"] == "starting" and bool(pool.metrics_port))
            report = pool.report(Probe(is_ready=True))
            assert (report["state"], report["ports"]["grpc"], report["problems"]) == ("ready", port, [])
            assert said == [f"a: {problem}"]


async def test_other_ports_mean_another_process_and_other_endpoints_do_not(tmp_path: Path) -> None:
    async with one_pool(wanted(), tmp_path / "a") as (pool, _):

        def pid() -> int | None:
            picker = pool.report(Probe())["picker"]
            return None if picker is None else picker["pid"]

        await until(lambda: pid() is not None)
        first = pid()
        other = msgspec.structs.replace(wanted(), endpoints=[{"name": "e", "address": "10.0.0.1"}])
        pool.want(other, "pmt_other")
        await until(lambda: "10.0.0.1" in (tmp_path / "a/endpoints.yaml").read_text())
        await until(lambda: (tmp_path / "a/token").read_text() == "pmt_other")
        assert pid() == first
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        pool.want(wanted(grpc=port), "")
        await until(lambda: pid() not in {None, first})
        assert pool.report(Probe())["ports"]["grpc"] == port


async def test_the_endpoints_file_is_written_only_when_it_says_something_new(
    tmp_path: Path,
) -> None:
    pool = msgspec.structs.replace(wanted(), endpoints=ENDPOINTS["spec"]["endpoints"])
    file = tmp_path / "a/endpoints.yaml"
    async with one_pool(pool, tmp_path / "a") as (running_pool, _):
        await until(lambda: running_pool.metrics_port is not None)
        found = read_endpoint_file(str(file)).endpoints(lambda _: ())
        assert found.problems == []
        assert [spec.key for spec in found.endpoints] == ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.2:8001"]
        before = file.stat().st_ino
        running_pool.want(msgspec.structs.replace(pool, guarded=Guarded("chat", 2, 7)), "")
        await until(lambda: running_pool.wanted is not None and running_pool.is_guarded)
        running_pool.want(msgspec.structs.replace(pool, endpoints=[]), "")
        await until(lambda: file.stat().st_ino != before)
        assert read_endpoint_file(str(file)).endpoints(lambda _: ()).endpoints == []


async def test_what_is_counted_is_told_while_the_guarded_revision_runs(tmp_path: Path) -> None:
    guarded = Guarded("chat", 2, 7)
    pool = msgspec.structs.replace(wanted(), guarded=guarded)
    async with one_pool(pool, tmp_path / "a") as (running_pool, _):
        await until(lambda: running_pool.metrics_port is not None)

        def told(running: str, requests: int, errors: int) -> tuple[Guarded, Counts] | None:
            return running_pool.observation(Probe(running=running, counts=Counts(requests, errors)))

        assert told("chat/1@0af3", 100, 50) is None
        assert told("chat/2@5f0c", 110, 51) == (guarded, Counts(0, 0))
        assert told("chat/2@5f0c", 130, 54) == (guarded, Counts(20, 3))
        assert running_pool.observation(Probe()) is None
        running_pool.want(wanted(), "")
        assert told("chat/2@5f0c", 140, 60) is None


async def test_a_picker_that_cannot_start_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "BACKOFF_FIRST_S", 600.0)
    failing = [sys.executable, "-c", "print('first'); print('no such flag'); raise SystemExit(2)"]
    monkeypatch.setattr(commands, "picker", lambda *_, **__: failing)
    async with one_pool(wanted(), tmp_path / "a") as (pool, _):
        await until(lambda: pool.report(Probe())["state"] == "down")
        report = pool.report(Probe())
        assert report["picker"] | {"log": ""} == {
            "pid": None,
            "restarts": 0,
            "cpuSeconds": None,
            "memoryBytes": None,
            "log": "",
        }
        assert report["problems"] == [
            "epp is not running and will be started again; its last words: no such flag"
        ]


def test_children_get_nothing_that_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "POINTSMAN_SECRET_KEY", "POINTSMAN_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "x")
    found = commands.child_environment()
    assert "secret" not in found.values()
    assert found["OTEL_SERVICE_NAME"] == "x"


def test_what_a_process_has_used_is_read_while_it_is_there() -> None:
    used = usage_of(os.getpid())
    assert used is not None
    assert used.cpu_s > 0
    assert used.memory_bytes > 1 << 20
    assert usage_of(2**22 + 1) is None
