"""Who subscribes: our own pickers and Envoys, told apart by what they ask for first."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from dataplane.xds.messages import STATIC_GATEWAY, Node

ENVOY_TYPES: Final = "type.googleapis.com/envoy."

LISTENER: Final = f"{ENVOY_TYPES}config.listener.v3.Listener"
ROUTES: Final = f"{ENVOY_TYPES}config.route.v3.RouteConfiguration"
CLUSTER: Final = f"{ENVOY_TYPES}config.cluster.v3.Cluster"
ENDPOINTS: Final = f"{ENVOY_TYPES}config.endpoint.v3.ClusterLoadAssignment"
SECRET: Final = f"{ENVOY_TYPES}extensions.transport_sockets.tls.v3.Secret"


class NodeKind(StrEnum):
    """What subscribes."""

    PICKER = "picker"
    """One of ours; its cluster is its pool."""
    GATEWAY = "gateway"
    """An Envoy; its cluster is its gateway."""
    WORKER = "worker"
    """One picker alone, beside what all of its pool are sent."""


class Audience(NamedTuple):
    """All nodes that are sent the same."""

    kind: NodeKind
    name: str
    """Of the pool or gateway; of a worker ``POOL/ID``."""


def worker_audience(node: Node) -> Audience:
    """Of one picker alone."""
    return Audience(NodeKind.WORKER, f"{node.cluster}/{node.id}")


def keeper_of(node_id: str) -> str:
    """What keeps an Envoy's last good configuration beside it."""
    return f"{node_id}-keeper"


def kind_of(type_url: str) -> NodeKind:
    """What asks for this type first."""
    is_gateway = type_url.startswith(ENVOY_TYPES) or type_url == STATIC_GATEWAY
    return NodeKind.GATEWAY if is_gateway else NodeKind.PICKER
