"""How guardrail policies are kept; what they say is judged by the payload processor's own structs."""

from __future__ import annotations

from typing import Final

import msgspec

from controlplane.core.resources import Document, Reference, ResourceService, Wanted
from controlplane.policies.models import GuardrailPolicy, GuardrailPolicyLink
from dataplane.config.guardrails import GuardrailPolicySpec, Judge, judge_parameters
from dataplane.errors import ConfigError
from epp.objects import schema

POLICY: Final = "GuardrailPolicy"


class GuardrailPolicyService(ResourceService[GuardrailPolicy]):
    """Guardrail policies."""

    kind = POLICY
    plural = "guardrailpolicies"
    versions = (schema.OWN_VERSION,)
    spec_type = GuardrailPolicySpec
    model = GuardrailPolicy
    references = (
        Reference("Tenant", "links__tenant", "spec.tenants"),
        Reference(schema.POOL, "links__pool", "spec.pools"),
    )

    def check(self, wanted: Wanted, problems: list[ConfigError]) -> None:
        """Each rule's parameters by its type."""
        judge_parameters(wanted.spec, "spec", problems)

    def assign(self, row: GuardrailPolicy, spec: GuardrailPolicySpec) -> None:
        """The spec without what it does not say."""
        row.priority, row.spec = spec.priority, msgspec.to_builtins(spec)

    def link(self, row: GuardrailPolicy, spec: GuardrailPolicySpec) -> None:
        """Each tenant and each pool that is named, also as the place of a judge."""
        judges = [part.pool for part in judge_parameters(spec, "spec", []) if isinstance(part, Judge)]
        row.links.all().delete()
        GuardrailPolicyLink.objects.bulk_create(
            [GuardrailPolicyLink(policy=row, tenant=name) for name in _exact(spec.tenants)]
            + [GuardrailPolicyLink(policy=row, pool=name) for name in _exact([*(spec.pools or ()), *judges])]
        )

    def spec_of(self, row: GuardrailPolicy) -> Document:
        """As it was written, defaults left out."""
        spec: Document = row.spec
        return spec


def _exact(patterns: list[str] | None) -> list[str]:
    return list(dict.fromkeys(pattern for pattern in patterns or () if not pattern.endswith("*")))
