"""The console's menu as data: what there is, and who sees it.

An entry is shown to whoever may read its kind; whether something may be changed is for the services to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from controlplane.core.roles import Action, Actor


@dataclass(frozen=True, slots=True)
class Item:
    """One entry."""

    label: str
    view: str
    """Name of its address."""
    kind: str
    """Who may read this kind sees the entry."""


ITEMS: Final = (
    Item("Overview", "console:overview", "InferencePool"),
    Item("Pools", "console:pools", "InferencePool"),
    Item("Guardrails", "console:guardrails", "GuardrailPolicy"),
    Item("Verdicts", "console:verdicts", "GuardrailPolicy"),
    Item("Processors", "console:processors", "PayloadProcessorConfig"),
    Item("Tenants", "console:tenants", "Tenant"),
    Item("Audit", "console:audit", "AuditEntry"),
    Item("Administration", "admin:index", "User"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it is shown on one page."""

    label: str
    url: str
    is_current: bool


def entries(actor: Actor, path: str) -> list[Entry]:
    """Somebody's menu on the page at ``path``; the entry with the longest address before it is current."""
    seen = [(item, reverse(item.view)) for item in ITEMS if actor.may(Action.READ, item.kind)]
    under = [url for _, url in seen if path == url or (url != "/" and path.startswith(url))]
    current = max(under, key=len, default="")
    return [Entry(item.label, url, url == current) for item, url in seen]
