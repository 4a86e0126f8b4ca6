"""Sends workers their configuration, and keeps what they say of it."""

from django.apps import AppConfig


class XdsConfig(AppConfig):
    """Workers and their answers."""

    name = "controlplane.xds"
    label = "xds"
