"""`pointsman up` on PostgreSQL: its parts, and the database itself, are killed under traffic.

Every request has a tenant of its own, so the ledger shows for each whether it was counted, and how often.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.test_up_machine import Up, descendants, running
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WITHOUT_TENANT = "default-flow"
FAIRNESS = "x-gateway-inference-fairness-id"
PARTS = {
    "web": " controlplane serve ",
    "xds": " serve-xds ",
    "tasks": " run-tasks",
    "valkey": "valkey",
    "fleet": " run-fleet",
    "gateway": " run-gateway ",
    "picker": " epp --pool-name counted",
}
"""What is killed -> what its command line has."""
POOL = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "InferencePool",
    "metadata": {"name": "counted"},
    "spec": {
        "selector": {"matchLabels": {"app": "counted"}},
        "targetPorts": [{"number": 8000}],
        "driver": {
            "type": "local",
            "simulated": {"replicas": 2, "profile": "instant", "models": ["tiny"]},
        },
    },
}


class Traffic:
    """Requests one after another in two lanes, until it is told to end."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = f"{url}/v1/chat/completions"
        self._number = 0
        self._ends = False
        self.sent: set[str] = set()
        self.completed: set[str] = set()
        self.failed: Counter[int] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._lane())

    def end(self) -> None:
        self._ends = True

    async def more(self, count: int) -> None:
        """Until so many more are complete."""
        wanted = len(self.completed) + count

        async def are_complete() -> bool:
            return len(self.completed) >= wanted

        await until(are_complete, lambda: f"{self.failed}")

    async def _lane(self) -> None:
        while not self._ends:
            self._number += 1
            name = f"t{self._number}"
            self.sent.add(name)
            body = {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": name}]}
            status = 0
            with contextlib.suppress(aiohttp.ClientError):
                async with self._session.post(self._url, json=body, headers={FAIRNESS: name}) as answer:
                    await answer.read()
                    status = answer.status
            if status == 200:
                self.completed.add(name)
            else:
                self.failed[status] += 1
            await asyncio.sleep(0.05)


def processes(parent: int, mark: str) -> set[int]:
    """Processes below one with this in their command line."""
    found = set()
    for pid in descendants(parent):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if mark in words:
                found.add(pid)
    return found


class Installation:
    """What runs, and how to reach it."""

    def __init__(self, state: Path, said: str, session: aiohttp.ClientSession) -> None:
        profile = json.loads((state / "profile.json").read_text())
        self.state = state
        self._session = session
        self._api, self._headers = profile["url"], {"Authorization": f"Bearer {profile['token']}"}
        self.gateway = self._address(said, r"^gateway: (\S+)$")
        self.pages = self._address(said, r"^metrics of the discovery server: (\S+)/metrics$")

    def _address(self, said: str, pattern: str) -> str:
        found = re.search(pattern, said, re.MULTILINE)
        assert found is not None, said
        return found[1]

    async def api(self, path: str, document: Any = None) -> tuple[int, Any]:
        """Status and body; 0 while nobody listens."""
        method = "GET" if document is None else "POST"
        try:
            async with self._session.request(
                method, f"{self._api}/api/v1/{path}", json=document, headers=self._headers
            ) as answer:
                return answer.status, await answer.json()
        except aiohttp.ClientError:
            return 0, None

    async def is_ready(self) -> bool:
        """Whether the discovery server says so, and the pool's picker is reported to serve."""
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{self.pages}/readyz") as answer:
                status, report = await self.api("pools/counted/status")
                is_told = status == 200 and not report["stale"] and bool(report["report"])
                return is_told and answer.status == 200 and report["report"]["state"] == "ready"
        return False

    async def xds_says(self, text: str) -> bool:
        """Whether the discovery server answers this when asked whether it is ready."""
        async with self._session.get(f"{self.pages}/readyz") as answer:
            return await answer.text() == text

    async def asks(self, model: str) -> int:
        body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "?"}]}
        async with self._session.post(f"{self.gateway}/v1/chat/completions", json=body) as answer:
            return answer.status

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in self.state.rglob("*.log"))


def renamed(model: str) -> dict[str, Any]:
    """A rewrite by which this model is answered, too."""
    rule = {"matches": [{"model": {"type": "Exact", "value": model}}], "targets": [{"modelRewrite": "tiny"}]}
    return {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": model},
        "spec": {"poolRef": {"name": "counted"}, "rules": [rule]},
    }


class Trial:
    """The installation with its database and its traffic."""

    def __init__(
        self, up: Up, here: Installation, database: PostgresServer, session: aiohttp.ClientSession
    ) -> None:
        self._up, self._here, self._database = up, here, database
        self.traffic = Traffic(session, here.gateway)

    async def answers(self, model: str) -> None:
        """Once it does."""

        async def is_answered() -> bool:
            return await self._here.asks(model) == 200

        await until(is_answered, self._here.logs)

    async def make_pool(self) -> None:
        assert (await self._here.api("apply", [POOL]))[0] == 200
        await until(self._here.is_ready, self._here.logs)
        await self.answers("tiny")

    async def database_is_killed(self) -> None:
        """Nobody who asks a model notices, a picker starts without it, and nothing ends by itself."""
        here, traffic = self._here, self.traffic
        before = {name: self._processes(name) for name in PARTS}
        await asyncio.to_thread(self._database.kill)
        await until(lambda: here.xds_says("not ready: the database fails\n"), here.logs)
        assert (await here.api("pools"))[0] == 503
        await traffic.more(40)
        assert traffic.failed == {}
        await self._kill("picker")
        await traffic.more(20)
        served = traffic.failed.copy()
        await asyncio.to_thread(self._database.start)
        await self._follows_changes("small")
        await traffic.more(20)
        assert traffic.failed == served
        after = {name: self._processes(name) for name in PARTS}
        assert [name for name in PARTS if before[name] != after[name]] == ["picker"]
        log = (here.state / "logs" / "tasks.log").read_text()
        assert "Traceback" not in log
        assert log.count("telemetry.guard waits, a server is away: ") == 1
        assert log.count("telemetry.guard goes on") == 1

    async def each_part_is_killed(self) -> None:
        """One after another; each is started again."""
        for name in PARTS:
            await self._kill(name)
            await self.traffic.more(10)
        await self._follows_changes("smaller")

    async def all_is_counted_once(self) -> None:
        """Records of the ledger, and their totals by the hour."""
        traffic = self.traffic

        async def is_all_there() -> bool:
            return traffic.completed <= set(await asyncio.to_thread(self._counted))

        await until(is_all_there, self._here.logs)
        counted = self._counted()
        names = [name for name in counted if name != WITHOUT_TENANT]
        assert [name for name, times in Counter(names).items() if times > 1] == []
        assert set(names) <= traffic.sent
        assert self._database.ask("SELECT sum(requests) FROM usage_hourlyusage") == [(len(counted),)]

    async def _follows_changes(self, model: str) -> None:
        assert (await self._here.api("apply", [renamed(model)]))[0] == 200
        await until(self._here.is_ready, self._here.logs)
        await self.answers(model)

    async def _kill(self, name: str) -> None:
        old = self._processes(name)
        assert old
        for pid in old:
            os.kill(pid, signal.SIGKILL)

        async def is_back() -> bool:
            return bool(self._processes(name) - old)

        await until(is_back, self._here.logs)
        if name == "web":
            await until(self._here.is_ready, self._here.logs)

    def _processes(self, name: str) -> set[int]:
        return processes(self._up.process.pid, PARTS[name])

    def _counted(self) -> list[str]:
        return [name for (name,) in self._database.ask("SELECT tenant FROM usage_ledgerentry")]


async def test_everything_is_on_postgresql_and_counts_right_whatever_is_killed(
    tmp_path: Path, mortal_postgres: PostgresServer
) -> None:
    state = tmp_path / "state"
    with running(state, DATABASE_URL=mortal_postgres.url) as up:
        said = await asyncio.to_thread(up.until, "Ctrl-C stops everything")
        async with aiohttp.ClientSession() as session:
            trial = Trial(up, Installation(state, said, session), mortal_postgres, session)
            await trial.make_pool()
            traffic = asyncio.create_task(trial.traffic.run())
            try:
                await trial.traffic.more(20)
                await trial.database_is_killed()
                await trial.each_part_is_killed()
            finally:
                trial.traffic.end()
                await traffic
            await trial.all_is_counted_once()
        assert not list(state.rglob("*.sqlite3"))
        up.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(up.process.wait) == 0
