"""Command lines and environment of the processes the driver starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from controlplane import environment
from controlplane.fleet.specs import Simulated
from dataplane import valkey
from dataplane.processes.command import POINTSMAN
from dataplane.processes.ports import LOOPBACK

DEFAULT_MODEL: Final = "simulated"
DRAIN: Final = "2s"
"""Below the time after which a stopping process is killed."""

_OURS: Final = frozenset(
    {environment.SECRET_KEY, environment.DATABASE_URL, "POINTSMAN_TOKEN", "DJANGO_SETTINGS_MODULE"}
)


class PickerPorts(NamedTuple):
    """Where a picker listens, on loopback."""

    grpc: int
    health: int
    metrics: int


def child_environment() -> dict[str, str]:
    """Ours without what a child has no business to know."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def picker(pool: str, ports: PickerPorts, flags: Sequence[str], *, experimental: bool) -> list[str]:
    """The Endpoint Picker of a pool, on loopback without TLS."""
    return [
        *(*POINTSMAN, "epp"),
        *("--pool-name", pool),
        *flags,
        *("--grpc-port", str(ports.grpc)),
        *("--grpc-health-port", str(ports.health)),
        *("--metrics-port", str(ports.metrics)),
        *("--host", LOOPBACK),
        "--secure-serving=false",
        *("--drain-timeout", DRAIN),
        *(("--allow-experimental-plugins",) if experimental else ()),
    ]


def usage_flags(journal: Path) -> list[str]:
    """Where a picker keeps its usage, if there is a Valkey to take it; the environment says where that is."""
    return ["--usage-journal", str(journal)] if os.environ.get(valkey.VARIABLE) else []


def simulator(pool: str, spec: Simulated, endpoints: Path) -> list[str]:
    """Simulated model servers of a pool, on free ports."""
    models = spec.models or [DEFAULT_MODEL]
    return [
        *(*POINTSMAN, "sim"),
        *("--model", models[0]),
        *("--served-model-name", *models),
        *("--replicas", str(spec.replicas)),
        *("--port", "0"),
        *("--name-prefix", pool),
        *("--endpoints-file", str(endpoints)),
        *("--admin-port", "0"),
        *(("--profile", spec.profile) if spec.profile else ()),
    ]
