"""Usage as an application of the control plane."""

from django.apps import AppConfig


class UsageConfig(AppConfig):
    """Has no kinds: usage is recorded, never configured."""

    name = "controlplane.usage"
    label = "usage"
