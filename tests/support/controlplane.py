"""The control plane for tests: actors of each role, documents, and an API client that acts as somebody."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from rest_framework.test import APIClient

from controlplane.core import tokens, users
from controlplane.core.documents import apply
from controlplane.core.roles import Actor, Role
from controlplane.xds import workers
from dataplane.xds.messages import Node

WORKER, VIEWER, OPERATOR, ADMIN = (Actor(str(role), role) for role in Role)

OBJECTIVE: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha2",
    "kind": "InferenceObjective",
    "metadata": {"name": "interactive"},
    "spec": {"poolRef": {"name": "pool"}, "priority": 10},
}
REWRITE: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha2",
    "kind": "InferenceModelRewrite",
    "metadata": {"name": "chat"},
    "spec": {
        "poolRef": {"name": "pool"},
        "rules": [
            {
                "matches": [{"model": {"type": "Exact", "value": "chat"}}],
                "targets": [{"modelRewrite": "llama", "weight": 3}],
            }
        ],
    },
}
POOL: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "InferencePool",
    "metadata": {"name": "pool"},
    "spec": {
        "selector": {"matchLabels": {"app": "vllm"}},
        "targetPorts": [{"number": 8000}],
        "appProtocol": "http",
        "driver": {
            "type": "local",
            "ports": {"grpc": 0, "health": 0, "metrics": 0},
            "allowExperimentalPlugins": False,
        },
    },
}
ENDPOINTS: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "EndpointList",
    "metadata": {"name": "rack-1"},
    "spec": {
        "poolRef": {"name": "pool"},
        "endpoints": [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2", "ranks": 2}],
    },
}
PICKER_CONFIG: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "metadata": {"name": "standard", "annotations": {"pointsman.dev/pools": "pool"}},
    "plugins": [{"type": "queue-scorer"}, {"type": "prefix-cache-scorer"}],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "prefix-cache-scorer", "weight": 3},
            ],
        }
    ],
}
TENANT: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "Tenant",
    "metadata": {"name": "research"},
    "spec": {
        "displayName": "Research",
        "fairnessWeight": 3,
        "allowedModels": ["llama-*", "chat"],
        "limits": {"requestsPerMinute": 600, "tokensPerMinute": 200000, "maxConcurrent": 32},
        "budgets": [
            {"period": "month", "amount": "250.00", "currency": "EUR", "alertAtPercent": [50, 80, 100]},
            {"period": "day", "tokens": 5000000, "enforcement": "soft"},
        ],
        "timeZone": "Europe/Berlin",
    },
}
VIRTUAL_KEY: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "VirtualKey",
    "metadata": {"name": "laptop"},
    "spec": {"tenant": "research", "allowedModels": ["llama-3"], "limits": {"requestsPerMinute": 60}},
}
IMPORTED_KEY: dict[str, Any] = {
    **VIRTUAL_KEY,
    "spec": {"tenant": "research", "keyDigest": hashlib.sha256(b"laptop").hexdigest(), "keyPrefix": "lap"},
}
CREDENTIAL: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "ProviderCredential",
    "metadata": {"name": "openai-key"},
    "spec": {"type": "APIKey", "expiresAt": "2099-01-01T00:00:00Z"},
}
PROVIDER: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "Provider",
    "metadata": {"name": "openai"},
    "spec": {
        "type": "openai",
        "credentialRef": {"name": "openai-key"},
        "headerMutation": {"set": [{"name": "openai-organization", "value": "org-1"}]},
    },
}
ROUTE: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "ModelRoute",
    "metadata": {"name": "chat"},
    "spec": {
        "models": ["chat", "gpt-*"],
        "targets": [
            {"pool": "pool", "modelNameOverride": "llama-3", "weight": 3},
            {
                "provider": "openai",
                "modelNameOverride": "gpt-4o",
                "priority": 1,
                "headerMutation": {"remove": ["x-internal"]},
                "bodyMutation": {"set": [{"path": "service_tier", "value": '"default"'}], "remove": ["user"]},
            },
        ],
        "fallbacks": [{"on": "ContextLengthExceeded", "provider": "openai", "modelNameOverride": "gpt-4.1"}],
        "retry": {
            "numRetries": 3,
            "backOff": {"baseInterval": "100ms", "maxInterval": "10s"},
            "retryOn": {"httpStatusCodes": [429, 503], "triggers": ["reset", "connect-failure"]},
        },
        "timeouts": {"request": "2m", "backendRequest": "30s", "streamIdle": "20s"},
    },
}
PRICE: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "ModelPrice",
    "metadata": {"name": "gpt-4o-2026"},
    "spec": {
        "provider": "openai",
        "model": "gpt-4o",
        "currency": "USD",
        "perMillionTokens": {"input": "2.50", "output": "10.00", "cachedInput": "1.25"},
        "validFrom": "2026-01-01T00:00:00Z",
    },
}
GATEWAY: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "Gateway",
    "metadata": {"name": "public"},
    "spec": {
        "listener": {"address": "127.0.0.1", "port": 8080},
        "maxRequestBodyBytes": 16777216,
        "streamIdleTimeout": "300s",
        "observeResponses": True,
        "accessLog": "/dev/stdout",
        "poolSelector": {"matchLabels": {"exposed": "yes"}},
        "externalPickers": {"tls": False, "healthPort": 9003},
    },
}
GUARDRAILS: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "GuardrailPolicy",
    "metadata": {"name": "baseline"},
    "spec": {
        "priority": 10,
        "tenants": ["research", "team-*"],
        "pools": ["pool"],
        "rules": [
            {
                "name": "personal-data",
                "type": "pii",
                "mode": "mask",
                "stages": ["request", "response", "stream"],
                "parameters": {"entities": ["email", "iban"]},
            },
            {
                "name": "codenames",
                "type": "patterns",
                "parameters": {"patterns": ["(?:project )?zebra-[0-9]+"]},
                "message": "Internal names stay here.",
            },
        ],
    },
}
PROCESSOR: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "PayloadProcessorConfig",
    "metadata": {"name": "by-model"},
    "plugins": [
        {
            "name": "model-header",
            "type": "body-field-to-header",
            "parameters": {"fieldName": "model", "headerName": "X-Gateway-Model-Name"},
        },
        {"type": "base-model-to-header"},
        {"type": "single-profile-picker"},
    ],
    "preProcessing": {"plugins": [{"pluginRef": "model-header"}]},
    "profilePicker": {"pluginRef": "single-profile-picker"},
    "profiles": [{"name": "default", "plugins": {"request": [{"pluginRef": "base-model-to-header"}]}}],
}
EXAMPLES: dict[str, dict[str, Any]] = {
    document["kind"]: document
    for document in (
        POOL,
        ENDPOINTS,
        OBJECTIVE,
        REWRITE,
        TENANT,
        IMPORTED_KEY,
        PICKER_CONFIG,
        PROCESSOR,
        CREDENTIAL,
        PROVIDER,
        ROUTE,
        PRICE,
        GUARDRAILS,
        GATEWAY,
    )
}
"""One document of each kind; those that others name come first."""
NEEDS: dict[str, list[dict[str, Any]]] = {
    "VirtualKey": [TENANT],
    "Provider": [CREDENTIAL],
    "ModelRoute": [CREDENTIAL, PROVIDER],
    "ModelPrice": [CREDENTIAL, PROVIDER],
}
"""Kind -> what the example of it cannot do without."""


def example(kind: str, name: str = "example") -> dict[str, Any]:
    """A document of a kind; two of them with different names do not collide."""
    document = copy.deepcopy(EXAMPLES[kind])
    document["metadata"]["name"] = name
    if kind == "EndpointPickerConfig":
        document["metadata"]["annotations"]["pointsman.dev/pools"] = f"pool-of-{name}"
    if kind == "VirtualKey":
        document["spec"]["keyDigest"] = hashlib.sha256(name.encode()).hexdigest()
    if kind == "ModelRoute":
        document["spec"]["models"] = [name]
    if kind == "ModelPrice":
        document["spec"]["model"] = name
    return document


@contextmanager
def everything_is_there() -> Iterator[None]:
    """An object of each kind is in the database, and the user ``known`` with a token, until the block ends.

    Tests inside it have transactions of their own, so that all find the same.
    """
    outermost = transaction.atomic()
    outermost._from_testcase = True  # as those of Django's own test cases: what a test commits is inside
    with outermost:
        apply(ADMIN, list(EXAMPLES.values()))
        tokens.issue(ADMIN, users.put(ADMIN, "known", Role.VIEWER), "known")
        yield
        transaction.set_rollback(True)


def prepare(kind: str) -> None:
    """Make what the example of a kind cannot do without."""
    apply(ADMIN, NEEDS.get(kind, []))


def picker_config(weight: float = 2, name: str = "standard", **annotations: str) -> dict[str, Any]:
    """A picker's configuration; annotations are ours, without their prefix."""
    document = copy.deepcopy(PICKER_CONFIG)
    document["schedulingProfiles"][0]["plugins"][0]["weight"] = weight
    said = {"pools": "pool", **annotations}
    document["metadata"] = {
        "name": name,
        "annotations": {f"pointsman.dev/{key}": text for key, text in said.items() if text},
    }
    return document


def processor_config(number: float = 2, name: str = "by-model", **annotations: str) -> dict[str, Any]:
    """A payload processor's configuration with a number in it; annotations as those of pickers."""
    document = copy.deepcopy(PROCESSOR)
    document["plugins"][1]["parameters"] = {"headerName": f"x-base-{number:g}"}
    document["metadata"] = {"name": name}
    if annotations:
        said = {f"pointsman.dev/{key}": text for key, text in annotations.items()}
        document["metadata"]["annotations"] = said
    return document


def objective(name: str = "interactive", *, version: int | None = None, **spec: Any) -> dict[str, Any]:
    """An objective; ``version`` is the one its change is meant for."""
    document = copy.deepcopy(OBJECTIVE)
    document["metadata"]["name"] = name
    document["spec"].update(spec)
    if version is not None:
        document["metadata"]["resourceVersion"] = str(version)
    return document


def subscribe(worker: str, pool: str = "pool") -> None:
    """A picker's stream begins, and asks for its configuration."""
    workers.arrived(Node(worker, pool, {"component": "epp"}), "pickers")
    workers.joined({worker})


def token(role: Role = Role.ADMIN) -> str:
    """A new token of a user of this role."""
    user = users.put(users.SYSTEM, f"a-{role}", role)
    return tokens.issue(users.SYSTEM, user, f"test-{user.tokens.count()}").text


def client(role: Role = Role.ADMIN) -> APIClient:
    """A client with a token of a user of this role."""
    found = APIClient()
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {token(role)}")
    return found
