"""What documents of pools and their endpoints may say beyond what a picker reads of them.

apiVersion: pointsman.dev/v1
kind: InferencePool
spec:
  selector: ...
  driver: {type: local, ports: {grpc: 9002}, simulated: {replicas: 2, profile: instant, models: [llama]}}
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from dataplane.errors import ConfigError
from epp.objects import schema

ENDPOINT_LIST: Final = "EndpointList"

MAX_REPLICAS: Final = 64
MAX_MODELS: Final = 16
MAX_LISTED: Final = 10_000
"""Entries of one list."""

ModelName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][-A-Za-z0-9._:/]{0,252}$")]
"""It becomes a word of a command line, so it begins with a letter or digit."""
ProfileName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][-a-z0-9]{0,62}$")]
"""A shipped profile; never a path."""
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of a document."""


class Ports(_Section, frozen=True, kw_only=True):
    """Where the picker listens; 0 = a free port, which stays the same as long as it is free."""

    grpc: Port = 0
    health: Port = 0
    metrics: Port = 0

    def __post_init__(self) -> None:
        given = [port for port in (self.grpc, self.health, self.metrics) if port]
        if len(set(given)) < len(given):
            raise ConfigError("names a port twice; each needs its own")


class Simulated(_Section, frozen=True, kw_only=True):
    """Model servers that behave like vLLM, started beside the picker."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = 1
    profile: ProfileName | None = None
    """Shipped latency profile; None = the simulator's default."""
    models: Annotated[list[ModelName], msgspec.Meta(max_length=MAX_MODELS)] = msgspec.field(
        default_factory=list
    )
    """What they serve; none = the simulator's default."""


class Driver(_Section, frozen=True, kw_only=True):
    """Who runs the pool's picker: ``local`` is ``pointsman controlplane run-fleet``."""

    type: Literal["local"]
    ports: Ports = Ports()
    simulated: Simulated | None = None
    allow_experimental_plugins: bool = False
    """Whether the picker takes configurations with plugins of Alpha stability."""


class InferencePoolSpec(schema.PoolSpec, frozen=True, kw_only=True):
    """``InferencePool.spec`` with its driver."""

    driver: Driver | None = None
    models: Annotated[list[ModelName], msgspec.Meta(max_length=MAX_MODELS)] | None = None
    """What clients may ask for; left out: what the simulated servers of its driver serve."""


class EndpointListSpec(_Section, frozen=True, kw_only=True):
    """``EndpointList.spec``: the pool, and what the picker's endpoints file says, judged by its reader."""

    pool_ref: schema.PoolRef
    resolve: dict[str, Any] = msgspec.field(default_factory=dict)
    endpoints: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_LISTED)]
