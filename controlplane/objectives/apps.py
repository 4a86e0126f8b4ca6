"""Priorities of requests, and the models that serve them."""

from django.apps import AppConfig


class ObjectivesConfig(AppConfig):
    """Adds its kinds to those of the control plane."""

    name = "controlplane.objectives"
    label = "objectives"

    def ready(self) -> None:
        """Models are loaded: the services can be used."""
        from controlplane.core.kinds import KINDS
        from controlplane.objectives.services import ModelRewriteService, ObjectiveService

        KINDS.add(ObjectiveService())
        KINDS.add(ModelRewriteService())
