"""Pools, their endpoints, and the drivers that run them."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Adds its kinds to those of the control plane."""

    name = "controlplane.fleet"
    label = "fleet"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.fleet.services import EndpointListService, PoolService

        KINDS.add(PoolService())
        KINDS.add(EndpointListService())
