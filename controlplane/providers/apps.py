"""Where requests go that no pool of ours serves, with which credentials, by which routes, at which price."""

from django.apps import AppConfig


class ProvidersConfig(AppConfig):
    """Adds its kinds to those of the control plane."""

    name = "controlplane.providers"
    label = "providers"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.providers.credentials import CredentialService
        from controlplane.providers.services import ModelPriceService, ModelRouteService, ProviderService

        for service in (CredentialService(), ProviderService(), ModelRouteService(), ModelPriceService()):
            KINDS.add(service)
