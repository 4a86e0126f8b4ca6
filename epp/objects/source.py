"""Where a picker's objects come from: files, a control plane, or nowhere."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from dataplane.config.given import Given
from dataplane.errors import ConfigError
from dataplane.observability.exposition import MetricSet
from epp.objects.documents import Scope
from epp.objects.files import ObjectFiles
from epp.objects.following import ObjectFollower
from epp.objects.snapshot import ObjectHolder
from epp.options import EppOptions

TakeConfiguration = Callable[[Given | None], Awaitable[Sequence[ConfigError]]]
"""Runs a configuration, None: that of the flags; or says what is wrong with it."""


class ObjectSource(Protocol):
    """Keeps the holder up to date."""

    async def load(self) -> None:
        """Fill the holder for the first time. ``ConfigError`` for what an operator must mend."""

    def watch(self) -> None:
        """Follow what changes from now on."""

    async def reload(self) -> list[str]:
        """Look now; what is wrong with the objects."""

    def describe(self, limit: int, ports: Iterable[int] = ()) -> dict[str, Any]:
        """JSON-able: what is in use, at most ``limit`` of a kind, and what is wrong."""

    async def stop(self) -> None:
        """Follow no longer."""


def object_source(
    options: EppOptions,
    holder: ObjectHolder,
    metrics: MetricSet,
    rng: random.Random,
    take: TakeConfiguration,
) -> ObjectSource | None:
    """What the flags name; None = there are no objects. ``take`` runs configurations of the control plane."""
    if options.objects_file:
        scope = Scope(options.pool_name, options.pool_group, options.pool_namespace)
        return ObjectFollower(ObjectFiles(options.objects_file, scope), holder, metrics)
    if not options.xds_server:
        return None
    # Only here: grpc comes with it.
    from dataplane.xds.messages import Node
    from dataplane.xds.transport import ServerAddress
    from epp.objects.receiving import ObjectReceiver

    server = ServerAddress(
        target=options.xds_server,
        token_file=options.xds_token_file,
        ca_file=options.xds_ca,
        cert_file=options.xds_cert,
        key_file=options.xds_key,
    )
    node = Node(options.xds_node_id or own_id(options), options.pool_name, {"component": "epp"})
    return ObjectReceiver(server, node, options.xds_cache, holder, metrics, take, rng=rng)


def own_id(options: EppOptions) -> str:
    """One name per picker of a machine, the same after a restart where the port is."""
    return f"{socket.gethostname()}-{options.grpc_port or os.getpid()}"
