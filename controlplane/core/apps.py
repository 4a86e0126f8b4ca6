"""The app that all others build on."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """People, tokens, the audit log, and what all kinds have in common."""

    name = "controlplane.core"
    label = "core"
