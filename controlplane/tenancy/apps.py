"""Who may send requests, how much, and with which keys."""

from django.apps import AppConfig


class TenancyConfig(AppConfig):
    """Adds its kinds to those of the control plane."""

    name = "controlplane.tenancy"
    label = "tenancy"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.tenancy.services import TenantService, VirtualKeyService

        KINDS.add(TenantService())
        KINDS.add(VirtualKeyService())
