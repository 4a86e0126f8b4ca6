"""Guardrail policies rolled out to real payload processors: canary, promotion, refusal, and going back."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from ipp.app import Processor
from ipp.options import parse_args
from tests.controlplane.policies.test_processes import FREE, configuration, is_blocked, policy
from tests.controlplane.xds.test_processes import Plant, plant
from tests.support.waiting import until

__all__ = ["plant"]

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(170)]

NAME = "GuardrailPolicy/house"


def released(word: str, release: str) -> dict[str, Any]:
    document = policy(word)
    document["metadata"]["annotations"] = {"pointsman.dev/rollout": release}
    return document


async def says(plant: Plant, *words: str, text: str | None = None) -> str:
    return await asyncio.to_thread(plant.command.says, *words, text=text)


async def apply(plant: Plant, *documents: dict[str, Any]) -> None:
    await says(plant, "apply", "-", text=yaml.safe_dump_all(documents))


async def until_status(plant: Plant, holds: Callable[[str], bool]) -> str:
    async with asyncio.timeout(60):
        while not holds(said := await says(plant, "rollout", "status", NAME)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return said


@asynccontextmanager
async def processor(plant: Plant, node: str, *more: str) -> AsyncIterator[Processor]:
    assert plant.server is not None
    flags = [
        *(*FREE, "--name=edge", f"--xds-server={plant.server.address}", f"--xds-token-file={plant.token}"),
        *(f"--xds-cache={plant.folder / node}", f"--xds-node-id={node}", *more),
    ]
    found = Processor(parse_args(flags))
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


def make_unknown(plant: Plant, number: int) -> None:
    """Let a revision hold what only newer processors know, as after half an upgrade."""
    (database,) = Path(plant.command.environment["POINTSMAN_STATE"]).rglob("*.sqlite3")
    with sqlite3.connect(database, timeout=30) as connection:
        changed = connection.execute(
            "UPDATE configs_configrevision SET content = replace(content, '\"keywords\"', '\"horoscope\"') "
            "WHERE number = ? AND content LIKE '%GuardrailPolicy%'",
            [number],
        )
        assert changed.rowcount == 1


async def test_a_policy_goes_from_a_canary_to_all_and_stops_where_it_is_refused(plant: Plant) -> None:
    plant.token.write_text(
        await says(plant, "controlplane", "token", "pickers", "edge", "--processor", "edge")
    )
    await apply(plant, configuration(), policy("sparrow"))
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(processor(plant, node)) for node in ("edge-1", "edge-2")]
        for each in (one, two):
            await until(lambda each=each: is_blocked(each, "a sparrow"))
        await until_status(plant, lambda said: "2 of 2 workers run it" in said)

        await apply(plant, released("herring", "1"))
        said = await until_status(plant, lambda said: "1 of 2 workers run it" in said)
        assert "of revision 2, canary 1 is canary" in said
        canary, stable = (one, two) if is_blocked(one, "a herring") else (two, one)
        assert (is_blocked(canary, "a sparrow"), is_blocked(stable, "a sparrow")) == (False, True)
        assert not is_blocked(stable, "a herring")
        assert canary.policies.describe()["revisions"] == {"house": 2}
        await says(plant, "rollout", "promote", NAME)
        await until(lambda: is_blocked(stable, "a herring"))
        await until_status(plant, lambda said: "is complete" in said)

        await apply(plant, released("heron", "manual"))
        planned = await says(plant, "rollout", "start", NAME, "--canary", "1", "--dry-run")
        assert planned.splitlines()[0] == "revision 3 for all payload processors; active: 2"
        assert "  tenants *: none that is known" in planned
        assert f"  {canary.options.xds_node_id} (edge): first" in planned
        await asyncio.to_thread(make_unknown, plant, 3)
        await says(plant, "rollout", "start", NAME, "--canary", "1")
        said = await until_status(plant, lambda said: "is halted" in said)
        assert "refuses it: house.spec.rules[0].type: " in said
        (refused,) = [each.policies.refused for each in (one, two) if each.policies.refused]
        assert refused[0].startswith("house.spec.rules[0].type: must be one of keywords,")
        assert [is_blocked(each, "a herring") for each in (one, two)] == [True, True]

        await says(plant, "rollout", "back", NAME, "--revision", "1")
        for each in (one, two):
            await until(lambda each=each: is_blocked(each, "a sparrow") and not is_blocked(each, "a herring"))
        await until_status(plant, lambda said: "is complete" in said)
        assert one.policies.describe()["revisions"] == {"house": 4}
        assert [each.policies.refused for each in (one, two)] == [[], []]

        await asyncio.to_thread(plant.kill_xds)
        await until(lambda: one.receiver is not None and not one.receiver.describe()["connected"])
        assert is_blocked(one, "a sparrow")
    # What was in force last is on disk: a start without a control plane enforces it.
    async with processor(plant, "edge-1") as again:
        assert is_blocked(again, "a sparrow")
        assert again.policies.describe()["revisions"] == {"house": 4}
        await apply(plant, policy("lynx"))
        await asyncio.to_thread(plant.start_xds)
        await until(lambda: is_blocked(again, "a lynx"))


async def test_a_canary_that_costs_requests_stops_by_itself(plant: Plant, valkey: str) -> None:
    """Processors publish what they count, the tasks of the control plane judge it."""
    plant.token.write_text(
        await says(plant, "controlplane", "token", "pickers", "edge", "--processor", "edge")
    )
    plant.command.environment["VALKEY_URL"] = valkey
    await apply(plant, configuration(), policy("sparrow"))
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(processor(plant, node, f"--valkey-url={valkey}"))
            for node in ("edge-1", "edge-2")
        ]
        for each in (one, two):
            await until(lambda each=each: is_blocked(each, "a sparrow"))
        await until_status(plant, lambda said: "2 of 2 workers run it" in said)
        await apply(plant, released("herring", "manual"))
        guard = ("--max-blocked-share", "0.2", "--min-requests", "10")
        await says(plant, "rollout", "start", NAME, "--canary", "1", *guard)
        await until_status(plant, lambda said: "1 of 2 workers run it" in said)
        canary = one if is_blocked(one, "a herring") else two
        with tasks(plant):
            for text in ("a gull", "a herring"):
                for _ in range(10):
                    is_blocked(canary, text)
            said = await until_status(plant, lambda said: "is halted" in said)
        assert "requests were blocked (" in said
        assert "blocked by guardrails since then" in said


@contextmanager
def tasks(plant: Plant) -> Iterator[None]:
    """The control plane's task of guards, as often as it is due."""
    script = (
        "import time, django; django.setup()\n"
        "from controlplane.telemetry.tasks import guard\n"
        "while True: guard(); time.sleep(0.5)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env=plant.command.environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()
