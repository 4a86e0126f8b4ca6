"""How guardrail policies are kept: documents with revisions, judged by the payload processor's compiler.

Saving a policy makes a revision that nobody runs; a rollout brings it to the processors, and ``apply`` begins
one, to all of them at once unless the document's annotation says otherwise
(``controlplane.configs.services``). Deleting a policy takes it from all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from controlplane.configs.content import parsed
from controlplane.configs.models import ConfigDocument
from controlplane.configs.services import ConfigService, Said
from controlplane.configs.subjects import POLICIES
from controlplane.core.resources import Document, Reference
from controlplane.policies.models import GuardrailPolicy, PolicyLink
from dataplane.config.guardrails import GuardrailPolicySpec, Judge, judge_parameters
from dataplane.errors import ConfigError
from epp.objects import schema
from ipp.policies import MAX_POLICIES

POLICY = POLICIES.kind


class GuardrailPolicyService(ConfigService):
    """Guardrail policies."""

    subject = POLICIES
    kind = POLICIES.kind
    plural = POLICIES.plural
    versions = (schema.OWN_VERSION,)
    spec_type = GuardrailPolicySpec
    model = GuardrailPolicy
    flat: ClassVar[bool] = False
    references = (
        Reference("Tenant", "links__tenant", "spec.tenants"),
        Reference(schema.POOL, "links__pool", "spec.pools"),
    )

    def check_change(self, row: ConfigDocument | None, spec: Said, problems: list[ConfigError]) -> None:
        """Processors take so many and no more."""
        if row is None and GuardrailPolicy.objects.count() >= MAX_POLICIES:
            problems.append(ConfigError(f"there are {MAX_POLICIES} policies already; put rules together"))

    def link(self, row: ConfigDocument, spec: Said) -> None:
        """Each tenant and each pool that is named, also as the place of a judge."""
        said = spec_in(parsed(row.content))
        judges = [part.pool for part in judge_parameters(said, "spec", []) if isinstance(part, Judge)]
        row.links.all().delete()
        PolicyLink.objects.bulk_create(
            [PolicyLink(policy=row, tenant=name) for name in _exact(said.tenants)]
            + [PolicyLink(policy=row, pool=name) for name in _exact([*(said.pools or ()), *judges])]
        )

    def spec_of(self, row: ConfigDocument) -> Document:
        """As people write it, defaults left out."""
        spec: Document = msgspec.to_builtins(spec_in(parsed(row.content)))
        return spec


def spec_in(content: Mapping[str, Any]) -> GuardrailPolicySpec:
    """The spec in a kept content."""
    return msgspec.convert(content["spec"], GuardrailPolicySpec)


def in_force(row: ConfigDocument) -> GuardrailPolicySpec:
    """What a policy says to traffic: its active revision, or the newest before there is an active one."""
    return spec_in(parsed(row.content if row.active is None else row.active.content))


def _exact(patterns: list[str] | None) -> list[str]:
    return list(dict.fromkeys(pattern for pattern in patterns or () if not pattern.endswith("*")))
