"""Pools of simulated servers as the console makes them: the documents that an operator would apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.db import transaction

from controlplane.configs.models import PoolBinding
from controlplane.configs.services import POOLS, PickerConfigService
from controlplane.core.documents import apply
from controlplane.core.errors import ConflictError
from controlplane.core.roles import Action, Actor, require
from controlplane.fleet.models import InferencePool
from controlplane.fleet.services import PoolService
from dataplane.config.epp_checks import KIND as CONFIG
from epp.objects import schema

SCORERS: Final = {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}
"""What pickers score by when nobody says otherwise, and its weights."""
PICKER_PORT: Final = 9002


def create_simulated(actor: Actor, name: str, models: Sequence[str], replicas: int) -> None:
    """A pool and its configuration, or neither. ``ConflictError`` when the name is taken."""
    require(actor, Action.WRITE, schema.POOL)
    if InferencePool.objects.filter(name=name).exists():
        raise ConflictError(f"there is a pool {name} already")
    apply(actor, [_pool(name, models, replicas), _config(name)])


def remove(actor: Actor, name: str) -> None:
    """Delete a pool, and the configuration that is for it alone."""
    with transaction.atomic():
        binding = PoolBinding.objects.select_related("document").filter(pool=name).first()
        if binding is not None and binding.document.pools == [name]:
            PickerConfigService().delete(actor, binding.document.name)
        PoolService().delete(actor, name)


def _pool(name: str, models: Sequence[str], replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": schema.POOL,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {
                "name": f"{name}-epp",
                "port": {"number": PICKER_PORT},
                "failureMode": "FailOpen",
            },
            "driver": {"type": "local", "simulated": {"replicas": replicas, "models": list(models)}},
        },
    }


def _config(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": CONFIG,
        "metadata": {"name": name, "annotations": {POOLS: name}},
        "plugins": [{"type": scorer} for scorer in SCORERS],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [{"pluginRef": scorer, "weight": weight} for scorer, weight in SCORERS.items()],
            }
        ],
    }
