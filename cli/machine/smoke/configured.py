"""From nothing to traffic and back, with calls of the API alone."""

import time
from typing import Any

from cli.local.smoke.context import expect, same, until
from cli.machine.smoke.context import Smoke, until_ready

POOL = "smoke"
MODEL = "smoke-model"
REPLICAS = 3
FLOWS_WITHIN_S = 60.0
GONE_WITHIN_S = 60.0

OWN = "pointsman.dev/v1"


def document(kind: str, name: str, spec: dict[str, Any], version: str = OWN) -> dict[str, Any]:
    """One document."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def config(weight: int, *, rest: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pool's EndpointPickerConfig; ``rest`` replaces parts of it."""
    profile = {
        "name": "default",
        "plugins": [
            {"pluginRef": "queue-scorer", "weight": weight},
            {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
            {"pluginRef": "prefix-cache-scorer", "weight": 3},
        ],
    }
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "metadata": {"name": POOL, "annotations": {"pointsman.dev/pools": POOL}},
        "plugins": [
            {"type": "queue-scorer"},
            {"type": "kv-cache-utilization-scorer"},
            {"type": "prefix-cache-scorer"},
        ],
        "schedulingProfiles": [profile],
        **(rest or {}),
    }


async def pool_from_nothing(smoke: Smoke) -> str:
    """A pool, a tenant with a key, an objective, a configuration: then its model is answered."""
    simulated = {"replicas": REPLICAS, "profile": "instant", "models": [MODEL]}
    pool = {
        "selector": {"matchLabels": {"app": POOL}},
        "targetPorts": [{"number": 8000}],
        "driver": {"type": "local", "simulated": simulated},
    }
    call = smoke.api.call
    same("status before", (await smoke.ask(MODEL))[0], 404)
    await call("POST", "pools", document("InferencePool", POOL, pool))
    await call("POST", "tenants", document("Tenant", POOL, {"displayName": "Smoke"}))
    key = await call("POST", "virtualkeys", document("VirtualKey", POOL, {"tenant": POOL}))
    expect(bool(key["status"]["key"]), "the key is not shown")
    objective = {"poolRef": {"name": POOL}, "priority": 7}
    await call("POST", "objectives", document("InferenceObjective", POOL, objective, "llm-d.ai/v1alpha2"))
    await call("POST", "endpointpickerconfigs", config(2))
    await call("POST", f"endpointpickerconfigs/{POOL}/publish", {})
    last_call = time.monotonic()

    async def flows() -> bool:
        return (await smoke.ask(MODEL))[0] == 200

    await until(flows, f"{MODEL} is answered", FLOWS_WITHIN_S)
    flowed = time.monotonic() - last_call
    await until_ready(smoke, POOL, REPLICAS)
    return f"answered {flowed:.1f} s after the last call; a key was shown once"


async def pool_deleted(smoke: Smoke) -> str:
    """Without its pool a model is answered with 404, in JSON; other models go on."""
    for place in (f"endpointpickerconfigs/{POOL}", f"objectives/{POOL}", f"pools/{POOL}"):
        version = (await smoke.api.call("GET", place))["metadata"]["resourceVersion"]
        reply = await smoke.api.ask("DELETE", place, version=version)
        expect(reply.status < 300, f"DELETE {place}: {reply}")

    async def gone() -> bool:
        status, body = await smoke.ask(MODEL)
        return status == 404 and body["error"]["code"] == "model_not_found"

    waited = await until(gone, f"404 in JSON for {MODEL}", GONE_WITHIN_S)
    return f"404 model_not_found after {waited:.1f} s"
