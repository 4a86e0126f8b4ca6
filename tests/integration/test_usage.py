"""Usage under traffic through a real Envoy while the picker, Valkey and the task worker are killed in turn.

Every request has a tenant of its own, so the ledger shows for each whether it was counted, and how often.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import aiohttp
import msgspec
import pytest
import redis

from dataplane.telemetry.summary import FIELD, STREAM, Summary
from tests.support.controlplane_command import Command
from tests.support.gateway import started_gateway
from tests.support.valkey import ValkeyServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FAIRNESS = "x-gateway-inference-fairness-id"


def config(valkey: str, journal: Path) -> str:
    return json.dumps(
        {
            "pools": [
                {
                    "name": "pool",
                    "models": ["tiny"],
                    "failureMode": "FailClose",
                    "simulator": {"replicas": 2, "profile": "instant"},
                    "picker": {"flags": ["--valkey-url", valkey, "--usage-journal", str(journal)]},
                }
            ]
        }
    )


class Tasks:
    """The worker of tasks as a process."""

    def __init__(self, command: Command, log: Path) -> None:
        self._command = command
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "controlplane", "run-tasks"],
                env=self._command.environment,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Traffic:
    """Requests one after another in a few lanes, until it is told to end."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._number = 0
        self._ends = False
        self.sent: set[str] = set()
        self.completed: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._lane())

    def end(self) -> None:
        self._ends = True

    async def more(self, count: int) -> None:
        """Until so many more are complete."""
        wanted = len(self.completed) + count
        while len(self.completed) < wanted:  # noqa: ASYNC110 - the test's timeout is the limit
            await asyncio.sleep(0.05)

    async def _lane(self) -> None:
        while not self._ends:
            self._number += 1
            name = f"t{self._number}"
            self.sent.add(name)
            body = {
                "model": "tiny",
                "max_tokens": 4,
                "stream": self._number % 2 == 0,
                "messages": [{"role": "user", "content": name}],
            }
            try:
                async with self._session.post(self._url, json=body, headers={FAIRNESS: name}) as answer:
                    await answer.read()
                    if answer.status == 200:
                        self.completed.add(name)
            except aiohttp.ClientError:
                pass  # the picker was killed while it was asked
            await asyncio.sleep(0.01)


def ledger(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [name for (name,) in connection.execute("SELECT tenant FROM usage_ledgerentry")]


def telemetry(url: str) -> int:
    """Requests of which the picker has told; none until it has told of any, as Valkey was away and forgot."""
    with redis.Redis.from_url(url) as client:
        said = [msgspec.json.decode(fields[FIELD], type=Summary) for _, fields in client.xrange(STREAM)]
    assert {(summary.pool, summary.endpoints_total) for summary in said} <= {("pool", 2)}
    return sum(summary.requests for summary in said)


async def test_no_record_is_lost_or_doubled_when_processes_are_killed(
    tmp_path: Path, mortal_valkey: ValkeyServer
) -> None:
    command = Command(tmp_path)
    command.environment["VALKEY_URL"] = mortal_valkey.url
    command.begins()
    database = tmp_path / "state/database.sqlite3"
    tasks = Tasks(command, tmp_path / "tasks.log")
    try:
        async with (
            started_gateway(config(mortal_valkey.url, tmp_path / "journal"), tmp_path / "run") as gateway,
            aiohttp.ClientSession() as session,
        ):
            traffic = Traffic(session, gateway.plan.port)
            running = asyncio.create_task(traffic.run())
            await traffic.more(50)
            await asyncio.to_thread(mortal_valkey.kill)
            await traffic.more(100)
            await asyncio.to_thread(mortal_valkey.start)
            await asyncio.to_thread(tasks.kill)
            await traffic.more(100)
            gateway.children["epp-pool"].kill()
            await traffic.more(50)
            tasks.start()
            await traffic.more(50)
            while not await asyncio.to_thread(telemetry, mortal_valkey.url):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.25)
            traffic.end()
            await running
        while traffic.completed - set(ledger(database)):  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.25)
    finally:
        tasks.kill()
    counted = ledger(database)
    assert len(counted) == len(set(counted))
    assert traffic.completed <= set(counted) <= traffic.sent
    assert len(traffic.completed) >= 350
