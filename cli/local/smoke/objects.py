"""Smoke checks of objectives and model rewrites: what the configuration declares, a request gets."""

from cli.local.smoke.context import Context, chat, distinct_text, same, until
from cli.local.smoke.requests import CHAT
from dataplane.processes.ports import LOOPBACK


async def alias_answered(context: Context) -> str:
    """A model that only a rewrite knows is answered by another one, under the name that was asked for."""
    seen = []
    for pool in context.pools:
        for name in pool.names[len(pool.models) :]:
            answer = await context.post(CHAT, chat(name, "who are you?", max_tokens=1))
            same(f"status for {name}", answer.status, 200)
            same(f"model in the answer for {name}", answer.json()["model"], name)
            seen.append(name)
    return ", ".join(seen) or "no aliases are configured"


async def objective_ranks(context: Context) -> str:
    """A request with an objective is decided with the priority of that objective."""
    seen = []
    for pool in context.pools:
        for document in pool.objects:
            if document["kind"] != "InferenceObjective":
                continue
            name, priority = document["metadata"]["name"], document["spec"]["priority"]
            request_id = f"smoke-{distinct_text(1)}"
            headers = {"x_request_id": request_id, "x_llm_d_inference_objective": name}
            answer = await context.post(CHAT, chat(pool.models[0], "first?", max_tokens=1), **headers)
            same(f"status with {name}", answer.status, 200)
            url = f"http://{LOOPBACK}:{pool.metrics_port}/debug/decisions/{request_id}"

            async def recorded(url: str = url) -> bool:
                return (await context.get(url)).status == 200

            await until(recorded, url, timeout_s=5)
            decisions = (await context.get(url)).json()["decisions"]
            same(f"priority of {name}", [each["priority"] for each in decisions], [priority])
            seen.append(f"{name}: {priority}")
    return ", ".join(seen) or "no objectives are configured"
