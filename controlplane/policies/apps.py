"""Policies: what may go into models and what may come out."""

from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    """Adds its kind to those of the control plane."""

    name = "controlplane.policies"
    label = "policies"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.policies.services import GuardrailPolicyService

        KINDS.add(GuardrailPolicyService())
