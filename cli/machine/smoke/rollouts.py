"""Configurations that change under load: a good one costs no request, a bad one changes nothing."""

import asyncio
from typing import Any

from cli.local.smoke.context import CheckError, expect, same, until
from cli.machine.smoke.configured import MODEL, POOL, config
from cli.machine.smoke.context import Smoke, traffic

PLACE = f"endpointpickerconfigs/{POOL}"
RATE = 100.0
LOAD_S = 1.0
STAGE_WITHIN_S = 60.0
NOT_ALLOWED = "agent-identity"
"""A plugin of Alpha stability: the control plane leaves it to the picker, whose pool does not allow it."""


async def weight_changed_under_load(smoke: Smoke) -> str:
    """Through a canary to all at 100 requests a second; decisions name the new revision."""
    before = await running_revision(smoke)
    async with traffic(smoke, MODEL, RATE) as load:
        await asyncio.sleep(LOAD_S)
        number = await save(smoke, config(5))
        await publish(smoke, number, canary="1")
        await until_stage(smoke, "canary", is_applied=True)
        await smoke.api.call("POST", f"{PLACE}/promote", {})
        await until_stage(smoke, "complete")
        await asyncio.sleep(LOAD_S)
    after = await running_revision(smoke)
    expect(after != before, f"the picker still runs {before}")
    decisions = (await smoke.page(POOL, "/debug/decisions?limit=1"))["decisions"]
    same("revision of the last decision", [each["config"] for each in decisions], [after])
    return f"{load.told()}; revision {number} ({after}) decides"


async def refused_revision_stops_at_canary(smoke: Smoke) -> str:
    """What the picker refuses is told with its path, stays at the canary, and nobody notices; then back."""
    before = await running_revision(smoke)
    plugins = [*config(5)["plugins"], {"type": NOT_ALLOWED}]
    async with traffic(smoke, MODEL, RATE) as load:
        number = await save(smoke, config(5, rest={"plugins": plugins}))
        await publish(smoke, number, canary="1")
        rollout = await until_stage(smoke, "halted")
        problems = [problem for worker in rollout["workers"] for problem in worker.get("problems", ())]
        paths = [problem["path"] for problem in problems]
        expect(any(path.startswith("plugins[3]") for path in paths), f"refused because of {problems}")
        same("revision that runs meanwhile", await running_revision(smoke), before)
        back = (await smoke.api.call("POST", f"{PLACE}/rollback", {}))["revision"]
        await until_stage(smoke, "complete")
    again = f"{POOL}/{back}@{before.rpartition('@')[2]}"
    await until(lambda: runs(smoke, again), f"{before} runs again, as {again}", STAGE_WITHIN_S)
    return f"{load.told()}; refused with {paths[0]}: {problems[0]['message']}; went back to {again}"


async def save(smoke: Smoke, wanted: dict[str, Any]) -> int:
    """Keep a changed configuration as a draft, and return its revision."""
    version = (await smoke.api.call("GET", PLACE))["metadata"]["resourceVersion"]
    reply = await smoke.api.ask("PUT", PLACE, wanted, version=version)
    expect(reply.status == 200, f"PUT {PLACE}: {reply}")
    newest = await smoke.api.call("GET", f"{PLACE}/revisions?limit=1&order=-number")
    return int(newest["items"][0]["number"])


async def publish(smoke: Smoke, revision: int, **wish: Any) -> None:
    """Begin a rollout."""
    await smoke.api.call("POST", f"{PLACE}/publish", {"revision": revision, **wish})


async def until_stage(smoke: Smoke, stage: str, *, is_applied: bool = False) -> dict[str, Any]:
    """Wait for a stage of the newest rollout, and if wanted until a worker runs its revision."""
    last: dict[str, Any] = {}

    async def there() -> bool:
        last.update(await smoke.api.call("GET", f"{PLACE}/rollout"))
        applied = any(worker["applied"] == last["revision"] for worker in last["workers"])
        return last["stage"] == stage and (applied or not is_applied)

    try:
        await until(there, f"the rollout is {stage}", STAGE_WITHIN_S)
    except CheckError as error:
        raise CheckError(f"{error}; it is {last}") from None
    return last


async def running_revision(smoke: Smoke) -> str:
    """As the picker names the configuration it runs: DOCUMENT/NUMBER@DIGEST."""
    return str((await smoke.page(POOL, "/debug/config"))["reload"]["revision"])


async def runs(smoke: Smoke, revision: str) -> bool:
    """Whether the picker runs a configuration."""
    return await running_revision(smoke) == revision
