"""Guardrail policies on the discovery stream: all of them, to every payload processor.

With them go the pools by which policies choose, and of pools that judge for a policy a few of their servers:
what is asked there does not pass a gateway, and so no guardrail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from controlplane.fleet import endpoints
from controlplane.fleet.models import InferencePool
from controlplane.gateways.reading import Lists, models_of
from controlplane.policies.models import GuardrailPolicy
from dataplane.addresses import host_port
from dataplane.xds.codec import wrapped
from dataplane.xds.messages import GUARDRAILS, Resource

MAX_SERVERS: Final = 16
"""Of a pool that judges."""


class GuardrailsBuilder:
    """What is in force."""

    def __init__(self) -> None:
        self._lists = Lists()

    def build(self, names: Collection[str]) -> Mapping[str, Mapping[str, Mapping[str, Resource]]]:
        """Name of a processor -> type -> the one resource, named as the processor."""
        rows = list(GuardrailPolicy.objects.order_by("name").values_list("name", "spec"))
        policies = [{"name": name, "spec": spec} for name, spec in rows]
        payload = msgspec.json.encode({"policies": policies, "pools": self._pools(rows)}, order="sorted")
        value = wrapped(payload)
        return {name: {GUARDRAILS: {name: Resource(name, value)}} for name in names}

    def _pools(self, rows: list[tuple[str, Any]]) -> list[dict[str, Any]]:
        judging = {
            rule["parameters"]["pool"]
            for _, spec in rows
            for rule in spec["rules"]
            if rule["type"] == "judge" and "pool" in rule.get("parameters", {})
        }
        servers = self._servers(judging)
        return [
            {"name": pool.name, "models": models_of(pool.spec), "urls": servers.get(pool.name, [])}
            for pool in InferencePool.objects.order_by("name")
        ]

    def _servers(self, pools: Collection[str]) -> dict[str, list[str]]:
        if not pools:
            return {}
        found = self._lists.addresses()
        for name, reported in endpoints.addresses(pools).items():
            found.setdefault(name, set()).update(reported)
        return {
            pool: [f"http://{host_port(address, port)}" for address, port in sorted(found.get(pool, ()))][
                :MAX_SERVERS
            ]
            for pool in pools
        }
