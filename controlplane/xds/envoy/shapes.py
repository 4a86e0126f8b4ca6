"""What a gateway is, as plain values: all that the builders of Envoy's resources need to know.

Where something is followed (endpoints, routes, secrets) is said by a ``Sources``: files of one machine, the
control plane's own stream, or nobody, when everything is written into the configuration itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerShape:
    """How a pool's picker is reached, or a payload processor."""

    address: str
    """IP address, or a host name that Envoy resolves."""
    port: int
    health_port: int
    is_tls: bool = False
    """TLS whose certificate nobody checks, as pickers draw their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShape:
    """One pool as clients see it."""

    name: str
    names: tuple[str, ...]
    """Models that clients may ask for."""
    fail_open: bool
    observe_responses: bool
    """Whether its picker has to see response bodies."""
    picker: PickerShape | None
    """None = nobody knows where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorShape:
    """The payload processor that every request passes before a pool is chosen."""

    where: PickerShape
    fail_open: bool
    """Whether requests pass without it when it is not there: unchecked."""
    sees_responses: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerShape:
    """The public listener."""

    address: str
    port: int
    max_body_bytes: int
    stream_idle_timeout_s: float
    observe_responses: bool
    access_log: str
    """Path of a file."""
    default_picker: str
    """Cluster named by the filter itself; every route names its own."""
    tls_secret: str = ""
    """Name of the certificate; empty = no TLS."""
    processor: ProcessorShape | None = None


CONTROL_PLANE: Mapping[str, Any] = {"ads": {}, "resource_api_version": "V3"}
"""A config source: the stream that carries everything."""
