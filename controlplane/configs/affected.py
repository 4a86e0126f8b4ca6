"""Whom a guardrail policy is for, the tenants, models and pools there are that it names; and who ignores it.

A change concerns the traffic that the policy was for as well as that which it is for from now on; traffic
has to match all three lists. Models are those that pools and routes say they serve: clients may ask for
others, which the patterns tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from controlplane.configs.content import parsed
from controlplane.configs.models import ConfigDocument, ConfigRevision
from controlplane.configs.subjects import POLICIES
from controlplane.fleet.models import InferencePool
from controlplane.gateways.reading import names_of, rewriting_rules, rewritten_models
from controlplane.providers.models import ModelRoutePattern
from controlplane.tenancy.models import Tenant
from controlplane.xds.models import Worker

MAX_KNOWN: Final = 100
"""Names that are told of each list; of the rest their number."""
ALL: Final = "*"
GUARDRAILS: Final = "guardrails"
"""The plugin that enforces policies."""


def by(row: ConfigDocument, revision: ConfigRevision) -> dict[str, Any] | None:
    """Of publishing a revision: per list its patterns and the names that match; None for other kinds."""
    if row.kind != POLICIES.kind:
        return None
    contents = [each.content for each in (row.active, revision) if each is not None]
    specs = [spec for text in contents if (spec := parsed(text)["spec"]).get("enabled", True)]
    pools = dict(InferencePool.objects.values_list("name", "spec"))
    rewritten = rewritten_models(rewriting_rules())
    served = {model for name, spec in pools.items() for model in names_of(spec, rewritten.get(name, ()))}
    routed = set(ModelRoutePattern.objects.values_list("pattern", flat=True))
    return {
        "tenants": _told(specs, "tenants", Tenant.objects.values_list("name", flat=True)),
        "models": _told(specs, "models", served | routed),
        "pools": _told(specs, "pools", pools),
    }


def unenforced(row: ConfigDocument, there: Iterable[Worker]) -> list[str]:
    """Payload processors that have a policy and enforce none, because their configuration has no guardrails.

    The workers come with what they have applied; those that run the file of their flags are left out.
    """
    if row.kind != POLICIES.kind:
        return []
    idle: dict[str, ConfigRevision] = {}
    for worker in there:
        revision = worker.applied
        if revision is not None and worker.pool not in idle and not _has_guardrails(revision.content):
            idle[worker.pool] = revision
    return [
        f"the payload processor {name} enforces no policy: revision {revision.number} of its configuration "
        f"has no plugin of type {GUARDRAILS}"
        for name, revision in sorted(idle.items())
    ]


def _has_guardrails(content: str) -> bool:
    plugins = parsed(content).get("plugins") or ()
    return any(isinstance(plugin, dict) and plugin.get("type") == GUARDRAILS for plugin in plugins)


def _told(specs: Collection[dict[str, Any]], field: str, names: Iterable[str]) -> dict[str, Any]:
    listed = [spec.get(field) for spec in specs]
    patterns = [ALL] if None in listed else sorted({pattern for each in listed if each for pattern in each})
    known = sorted(name for name in set(names) if any(_meet(name, pattern) for pattern in patterns))
    return {"patterns": patterns, "known": known[:MAX_KNOWN], "more": max(0, len(known) - MAX_KNOWN)}


def _meet(one: str, other: str) -> bool:
    """Whether some name is meant by both, each a name or the beginning of names and then ``*``."""
    if one.endswith("*") and other.endswith("*"):
        return one[:-1].startswith(other[:-1]) or other[:-1].startswith(one[:-1])
    if one.endswith("*"):
        return other.startswith(one[:-1])
    return one.startswith(other[:-1]) if other.endswith("*") else one == other
