"""Where websockets of the control plane go."""

from __future__ import annotations

from typing import Any, Final, cast

from django.urls import path

from controlplane.telemetry.consumers import TelemetryConsumer

urlpatterns: Final[list[Any]] = [
    # Channels routes by Django's patterns, whose types know of views alone.
    path("ws/telemetry", cast("Any", TelemetryConsumer.as_asgi())),
]
