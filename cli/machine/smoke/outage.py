"""The control plane away under traffic: nobody who asks a model notices, and later everything converges."""

import asyncio
import os
import signal

from cli.local.smoke.context import expect, same, until
from cli.machine.api import ApiError
from cli.machine.machine import is_ready
from cli.machine.smoke.configured import MODEL, POOL
from cli.machine.smoke.context import Smoke, picker_pid, traffic
from dataplane.processes.ports import LOOPBACK

PARTS = ("web", "xds", "tasks", "valkey")
RATE = 50.0
BACK_WITHIN_S = 90.0
"""Envoy tries again at random moments, at most 30 s apart."""


async def parts_killed_under_traffic(smoke: Smoke) -> str:
    """kill -9 of web, xds, tasks and Valkey; a picker restarted meanwhile serves with its last good set."""
    machine = smoke.machine
    victim = next(name for name in await machine.reports() if name != POOL)
    port = (await machine.reports())[victim]["ports"]["metrics"]
    pid = await picker_pid(machine, victim)
    config, objects = await shown(smoke, port)
    parts = [name for name in PARTS if name in machine.children]
    async with traffic(smoke, MODEL, RATE) as load:
        await machine.hold(*parts)
        await expect_away(smoke)
        os.kill(pid or 0, signal.SIGKILL)

        async def restarted() -> bool:
            try:
                async with smoke.session.get(f"http://{LOOPBACK}:{port}/readyz") as answer:
                    return answer.status == 200
            except OSError:
                return False

        await asyncio.sleep(1)
        meanwhile = await until(
            restarted, f"the picker of {victim} serves without a control plane", BACK_WITHIN_S
        )
        same("its configuration and objects", await shown(smoke, port), (config, objects))
        await machine.release(*parts)

        async def converged() -> bool:
            try:
                reports = await machine.reports()
                hears = [await hears_control_plane(smoke, name) for name in reports]
            except ApiError:
                return False
            is_followed = await follows(smoke)
            return is_followed and all(hears) and all(map(is_ready, reports.values()))

        what = "the control plane is back, Envoy and every picker follow it and every pool is ready"
        back = await until(converged, what, BACK_WITHIN_S)
    expect(await picker_pid(machine, victim) not in {None, pid}, f"the picker of {victim} was not restarted")
    return (
        f"{load.told()} while {', '.join(parts)} were away; a picker restarted meanwhile served after "
        f"{1 + meanwhile:.1f} s; all back {back:.1f} s after their return"
    )


async def follows(smoke: Smoke) -> bool:
    """Whether Envoy is connected to its control plane."""
    url = f"http://{LOOPBACK}:{smoke.gateway.admin_port}/stats?format=json&filter=^control_plane.connected_state$"
    async with smoke.session.get(url) as answer:
        found = await answer.json(content_type=None)
    return [each["value"] for each in found["stats"]] == [1]


async def hears_control_plane(smoke: Smoke, pool: str) -> bool:
    """Whether a pool's picker is connected to its control plane. `ApiError` while it has none."""
    return bool((await smoke.page(pool, "/debug/objects"))["controlPlane"]["connected"])


async def expect_away(smoke: Smoke) -> None:
    """`CheckError` when the API still answers."""
    try:
        await smoke.api.ask("GET", "whoami")
    except ApiError:
        return
    expect(False, "the control plane still answers")


async def shown(smoke: Smoke, metrics_port: int) -> tuple[str, list[str]]:
    """The configuration a picker runs, and the names of its objects."""
    base = f"http://{LOOPBACK}:{metrics_port}"
    async with smoke.session.get(f"{base}/debug/config") as answer:
        revision = (await answer.json(content_type=None))["reload"]["revision"]
    async with smoke.session.get(f"{base}/debug/objects") as answer:
        page = await answer.json(content_type=None)
    return str(revision), sorted(str(page[kind]) for kind in ("objectives", "rewrites") if kind in page)
