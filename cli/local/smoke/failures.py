"""Parts that die under load: requests keep flowing, and the part comes back."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp

from cli.local.metrics import pool_status, scrape
from cli.local.smoke.context import Context, Pool, chat, distinct_text, expect, same, until
from cli.local.smoke.requests import CHAT
from controlplane.xds.envoy.clusters import pool_cluster_name
from dataplane.processes.ports import LOOPBACK
from simulator.headers import POD

WORKERS = 8
WARM_UP_S = 0.5
FLOWS_AGAIN_WITHIN_S = 1.0
WATCH_S = 2.5
BACK_WITHIN_S = 90.0
MOST_FAILED = 0.02
"""Share of the requests that may fail at the moment of the kill: every attempt met a dying endpoint."""
AFTERWARDS = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request of the load."""

    started: float
    failure: str
    """Empty when it succeeded."""
    pod: str


@contextlib.asynccontextmanager
async def load(context: Context, pool: Pool) -> AsyncIterator[list[Outcome]]:
    """Keep `WORKERS` requests running; their outcomes are appended to the list."""
    outcomes: list[Outcome] = []

    async def worker() -> None:
        while True:
            started = time.monotonic()
            try:
                answer = await context.post(CHAT, chat(pool.models[0], distinct_text(20), max_tokens=4))
            except (aiohttp.ClientError, TimeoutError) as error:
                outcomes.append(Outcome(started, repr(error), ""))
                continue
            failure = "" if answer.status == 200 else f"{answer.status} {answer.body[:200]!r}"
            outcomes.append(Outcome(started, failure, answer.headers.get(POD, "")))

    workers = [asyncio.create_task(worker()) for _ in range(WORKERS)]
    try:
        await asyncio.sleep(WARM_UP_S)
        yield outcomes
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def killed_picker(context: Context) -> str:
    """kill -9 of a picker that fails open: requests flow within a second, and it comes back and picks."""
    pool = next((pool for pool in context.pools if pool.fail_open), None)
    if pool is None:
        return "no pool fails open"
    pid = await context.target.picker_pid(pool.name)
    expect(pid is not None, "the picker does not run")
    async with load(context, pool) as outcomes:
        killed = time.monotonic()
        os.kill(pid or 0, signal.SIGKILL)
        await asyncio.sleep(WATCH_S)

        async def picks_again() -> bool:
            status = pool_status(pool, await scrape(context.session, pool))
            is_another = await context.target.picker_pid(pool.name) not in {None, pid}
            return is_another and status.endpoints >= pool.replicas and status.requests > 0

        back = WATCH_S + await until(picks_again, "the picker is back and picks", BACK_WITHIN_S)
    during = [outcome for outcome in outcomes if outcome.started >= killed]
    late = [
        outcome.failure
        for outcome in during
        if outcome.failure and outcome.started > killed + FLOWS_AGAIN_WITHIN_S
    ]
    expect(
        not late,
        f"{len(late)} of {len(during)} requests failed later than a second after the kill: {late[:3]}",
    )
    early = sum(bool(outcome.failure) for outcome in outcomes)
    return f"{len(during)} requests, {early} failed within the first second; picks again within {back:.1f} s"


async def killed_endpoints(context: Context) -> str:
    """All model servers but one die: that one serves everybody; once revived the others are used again."""
    pool = max(context.pools, key=lambda pool: pool.replicas)
    if pool.replicas < 2:
        return "no pool has a second endpoint"
    admin = f"http://{LOOPBACK}:{pool.simulator_admin_port}/replicas"
    victims = range(1, pool.replicas)
    async with load(context, pool) as outcomes:
        killed = time.monotonic()
        await asyncio.gather(*(act(context, f"{admin}/{victim}/kill") for victim in victims))
        await asyncio.sleep(WATCH_S)
    failed = [outcome for outcome in outcomes if outcome.failure]
    late = [outcome.failure for outcome in failed if outcome.started > killed + FLOWS_AGAIN_WITHIN_S]
    expect(not late, f"{len(late)} requests failed later than a second after the kill: {late[:3]}")
    expect(
        len(failed) <= MOST_FAILED * len(outcomes),
        f"{len(failed)} of {len(outcomes)} requests failed: {[outcome.failure for outcome in failed[:3]]}",
    )
    retried = await retries(context, pool)
    for _ in range(AFTERWARDS):
        answer = await context.post(CHAT, chat(pool.models[0], distinct_text(20), max_tokens=1))
        same("status", answer.status, 200)
        same("endpoint", answer.headers[POD].rpartition("-")[2], "0")
    same("retries while the others are known to be dead", await retries(context, pool) - retried, 0)
    await asyncio.gather(*(act(context, f"{admin}/{victim}/revive") for victim in victims))
    back = await used_again(context, pool)
    return (
        f"{len(outcomes)} requests while {len(victims)} of {pool.replicas} died, {len(failed)} failed; "
        f"all used again {back:.1f} s after their return"
    )


async def used_again(context: Context, pool: Pool) -> float:
    """Wait until every endpoint has answered under load, and return how long that took."""
    async with load(context, pool) as outcomes:
        seen = len(outcomes)

        async def everybody() -> bool:
            return len({outcome.pod for outcome in outcomes[seen:] if outcome.pod}) == pool.replicas

        return WARM_UP_S + await until(everybody, "every endpoint answers again", BACK_WITHIN_S)


async def retries(context: Context, pool: Pool) -> int:
    """How many attempts beyond the first Envoy has made in a pool."""
    name = f"cluster.{pool_cluster_name(pool.name)}.upstream_rq_retry"
    url = f"http://{LOOPBACK}:{context.target.admin_port}/stats?format=json&filter={name}$"
    return sum(int(stat["value"]) for stat in (await context.get(url)).json()["stats"])


async def act(context: Context, url: str) -> None:
    """POST to the simulator's admin interface. Raises `CheckError` unless it agrees."""
    async with context.session.post(url) as answer:
        expect(answer.status == 200, f"{url}: {answer.status} {await answer.text()}")
