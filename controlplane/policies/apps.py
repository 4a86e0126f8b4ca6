"""Policies: what may go into models and what may come out, and what is made of it on the way."""

from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    """Adds its kinds to those of the control plane."""

    name = "controlplane.policies"
    label = "policies"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.policies.processors import PayloadProcessorConfigService
        from controlplane.policies.services import GuardrailPolicyService

        KINDS.add(GuardrailPolicyService())
        KINDS.add(PayloadProcessorConfigService())
