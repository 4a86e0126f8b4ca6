"""The console in tests: browsers in which somebody is logged in, and what they are shown."""

from __future__ import annotations

from typing import Any

import yaml
from django.test import Client

from controlplane.core import users
from controlplane.core.roles import Role

PASSWORD = "correct horse battery"


def person(role: Role) -> Client:
    """A browser in which somebody of this role is logged in."""
    user = users.put(users.SYSTEM, str(role), role)
    client = Client(enforce_csrf_checks=False)
    client.force_login(user)
    return client


def text_of(answer: Any) -> str:
    found: str = answer.content.decode()
    return found


def config_text(weight: int) -> str:
    document = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "metadata": {"name": "edge", "annotations": {"pointsman.dev/pools": "edge"}},
        "plugins": [{"type": "queue-scorer"}],
        "schedulingProfiles": [
            {"name": "default", "plugins": [{"pluginRef": "queue-scorer", "weight": weight}]}
        ],
    }
    return yaml.safe_dump(document)
