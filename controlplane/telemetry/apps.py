"""Telemetry as an application of the control plane."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Has neither kinds nor models: what it knows is fifteen minutes old at most."""

    name = "controlplane.telemetry"
    label = "telemetry"
