"""Configurations of pickers and payload processors: documents with history, rolled out to every worker."""

from django.apps import AppConfig


class ConfigsConfig(AppConfig):
    """Adds its kinds to those of the control plane."""

    name = "controlplane.configs"
    label = "configs"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.configs.services import PickerConfigService, ProcessorConfigService
        from controlplane.core.kinds import KINDS

        KINDS.add(PickerConfigService())
        KINDS.add(ProcessorConfigService())
