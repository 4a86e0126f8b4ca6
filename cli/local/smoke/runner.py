"""Runs the smoke checks one after another, failed ones or not, and sums them up."""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, TypeVar

import aiohttp

from cli.local.gateway import Gateway
from cli.local.smoke import failures, objects, requests, routing, sdk
from cli.local.smoke.context import CheckError, Context, GatewayTarget
from dataplane.processes.child import Say

CHECK_TIMEOUT_S = 240.0

C = TypeVar("C")

Check = Callable[[Context], Awaitable[str]]
"""Returns what it saw; raises `CheckError` otherwise."""

CHECKS: tuple[Check, ...] = (
    requests.models_listed,
    sdk.sdk_synchronous,
    sdk.sdk_asynchronous,
    sdk.sdk_streaming,
    sdk.sdk_error,
    requests.malformed_json,
    requests.missing_model,
    requests.unknown_model,
    requests.unknown_path,
    requests.bodies_unchanged,
    requests.chunked_body,
    requests.oversize_body,
    requests.forged_headers,
    requests.client_abort,
    requests.decision_explained,
    objects.alias_answered,
    objects.objective_ranks,
    routing.repeat_hits_cache,
    routing.burst_spreads,
    requests.protocol_clean,
    failures.killed_endpoints,
    failures.killed_picker,
)


async def run_checks(gateway: Gateway, say: Say) -> dict[str, Any]:
    """Run all checks and return the summary: overall result, what ran, and a row per check."""
    started = time.monotonic()
    async with client() as session:
        context = Context(GatewayTarget(gateway), session)
        rows = [await run_check(check, context, say) for check in CHECKS]
    return summary(
        rows,
        started,
        {pool.name: pool.replicas for pool in gateway.plan.pools},
        {name: child.restarts for name, child in gateway.children.items()},
    )


def client() -> aiohttp.ClientSession:
    """Any number of connections, and an end to every request."""
    timeout = aiohttp.ClientTimeout(total=CHECK_TIMEOUT_S)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))


def summary(
    rows: list[dict[str, Any]], started: float, pools: Mapping[str, int], restarts: Mapping[str, int]
) -> dict[str, Any]:
    """What a run comes to; ``pools`` with their replicas, ``restarts`` of processes."""
    failed = [row["name"] for row in rows if row["result"] != "passed"]
    return {
        "result": "failed" if failed else "passed",
        "failed": failed,
        "duration_s": round(time.monotonic() - started, 3),
        "pointsman": version("pointsman"),
        "python": platform.python_version(),
        "pools": dict(pools),
        "restarts": dict(restarts),
        "checks": rows,
    }


async def run_check(check: Callable[[C], Awaitable[str]], context: C, say: Say) -> dict[str, Any]:
    """Run one check; whatever it raises is its result."""
    name = getattr(check, "__name__", "check")
    started = time.monotonic()
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            result, detail = "passed", await check(context)
    except CheckError as error:
        result, detail = "failed", str(error)
    except Exception as error:  # noqa: BLE001  # a client library may raise anything; the row says what
        result, detail = "failed", f"{type(error).__name__}: {error}"
    duration = round(time.monotonic() - started, 3)
    say(f"{result}: {name} ({duration} s): {detail}")
    return {"name": name, "result": result, "detail": detail, "duration_s": duration}
