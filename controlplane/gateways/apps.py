"""Gateways: the Envoys in front of the pools."""

from django.apps import AppConfig


class GatewaysConfig(AppConfig):
    """Adds its kind to those of the control plane."""

    name = "controlplane.gateways"
    label = "gateways"

    def ready(self) -> None:
        """Models are loaded: the service can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.gateways.services import GatewayService

        KINDS.add(GatewayService())
