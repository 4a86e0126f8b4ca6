"""The pools that processors are told, by which policies choose traffic."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.policies.delivery import GuardrailsBuilder
from controlplane.xds.nodes import NodeKind
from controlplane.xds.workers import arrived
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import GUARDRAILS, Node
from ipp.policies import PoolPlace, PoolTable
from tests.support.controlplane import OPERATOR, POOL, REWRITE, client

pytestmark = pytest.mark.django_db


def pool(name: str, *models: str) -> dict[str, Any]:
    made = copy.deepcopy(POOL)
    made["metadata"]["name"] = name
    made["spec"]["models"] = list(models)
    return made


def told() -> dict[str, list[str]]:
    """Pool -> models, in the order in which a processor is told them."""
    arrived(Node("i-1", "edge", {"component": "ipp"}), "processors", NodeKind.PROCESSOR)
    value = GuardrailsBuilder().build(["edge/i-1"])["edge/i-1"][GUARDRAILS]["edge"].value
    return {each["name"]: each["models"] for each in json.loads(unwrapped(value))["pools"]}


def test_a_name_that_a_rewrite_knows_is_one_of_its_pool() -> None:
    apply(OPERATOR, [pool("pool", "llama"), REWRITE])
    assert told() == {"pool": ["llama", "chat"]}


def test_a_model_of_two_pools_is_that_of_the_pool_made_first() -> None:
    apply(OPERATOR, [pool("zebra", "llama")])
    apply(OPERATOR, [pool("ant", "llama", "qwen")])
    found = told()
    assert list(found) == ["zebra", "ant"]
    table = PoolTable([PoolPlace(name=name, models=models) for name, models in found.items()])
    assert (table.pool_of("llama"), table.pool_of("qwen")) == ("zebra", "ant")


def test_names_of_rewrites_are_among_the_models_that_a_policy_concerns() -> None:
    apply(OPERATOR, [pool("pool", "llama"), REWRITE])
    document = {
        "apiVersion": "pointsman.dev/v1",
        "kind": "GuardrailPolicy",
        "metadata": {"name": "house", "annotations": {"pointsman.dev/rollout": "manual"}},
        "spec": {"rules": [{"name": "words", "type": "keywords", "parameters": {"words": ["zebra"]}}]},
    }
    apply(OPERATOR, [document])
    plan = client(Role.VIEWER).get("/api/v1/guardrailpolicies/house/plan").json()
    assert plan["affects"]["models"]["known"] == ["chat", "llama"]
