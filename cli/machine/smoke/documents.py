"""Everything as documents: applied where they came from they change nothing, elsewhere they create all."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cli.local.smoke.context import same, until
from cli.machine.api import Api, answers
from cli.machine.database import set_up
from cli.machine.smoke.context import Smoke
from dataplane.processes.child import Child
from dataplane.processes.command import POINTSMAN
from dataplane.processes.ports import Ports

SERVES_WITHIN_S = 90.0


async def export_changes_nothing_here_and_makes_everything_elsewhere(smoke: Smoke) -> str:
    """export | apply --dry-run, on this control plane and on one with an empty database."""
    documents = (await smoke.api.call("GET", "export"))["documents"]
    plan = await smoke.api.call("POST", "apply?dry_run=true", documents)
    same("plan where they came from", actions(plan), {"unchanged": len(documents)})
    elsewhere = await plan_elsewhere(smoke, documents)
    same("plan on an empty database", elsewhere, {"create": len(documents)})
    return f"{len(documents)} documents: all unchanged here, all created on an empty database"


def actions(plan: dict[str, list[dict[str, str]]]) -> dict[str, int]:
    """How many documents each action is for."""
    return dict(Counter(step["action"] for step in plan["steps"]))


async def plan_elsewhere(smoke: Smoke, documents: Sequence[dict[str, Any]]) -> dict[str, int]:
    """What applying them comes to on a control plane of its own."""
    here = smoke.machine.layout
    ports = Ports(random.SystemRandom())
    layout = replace(here, state=here.state / "elsewhere", web_port=ports(0, "web"))
    layout.logs.mkdir(parents=True)
    api = Api(smoke.session, layout.web, (await set_up(layout, "")).token)
    command = (*POINTSMAN, "controlplane", "serve", "--port", str(layout.web_port))
    web = Child("web", command, layout.logs, lambda _: None, layout.environment())
    await web.start()
    try:
        await until(lambda: answers(api), "the other control plane answers", SERVES_WITHIN_S)
        return actions(await api.call("POST", "apply?dry_run=true", documents))
    finally:
        await web.stop()
