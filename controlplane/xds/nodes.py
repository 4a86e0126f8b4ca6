"""Who subscribes: our pickers and payload processors, and Envoys, told apart by what they first ask for."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from dataplane.xds.messages import GUARDRAILS, PICKER_CONFIG, PROCESSOR_CONFIG, STATIC_GATEWAY, Node

ENVOY_TYPES: Final = "type.googleapis.com/envoy."

LISTENER: Final = f"{ENVOY_TYPES}config.listener.v3.Listener"
ROUTES: Final = f"{ENVOY_TYPES}config.route.v3.RouteConfiguration"
CLUSTER: Final = f"{ENVOY_TYPES}config.cluster.v3.Cluster"
ENDPOINTS: Final = f"{ENVOY_TYPES}config.endpoint.v3.ClusterLoadAssignment"
SECRET: Final = f"{ENVOY_TYPES}extensions.transport_sockets.tls.v3.Secret"


PROCESSOR_TYPES: Final = (PROCESSOR_CONFIG, GUARDRAILS)


class NodeKind(StrEnum):
    """What subscribes."""

    PICKER = "picker"
    """One of ours; its cluster is its pool."""
    GATEWAY = "gateway"
    """An Envoy; its cluster is its gateway."""
    PROCESSOR = "processor"
    """A payload processor of ours; its cluster is the name that all of its replicas have."""
    WORKER = "worker"
    """One picker alone, beside what all of its pool are sent."""
    PROCESSOR_WORKER = "processor-worker"
    """One payload processor alone."""


SUBSCRIBERS: Final = (NodeKind.PICKER, NodeKind.GATEWAY, NodeKind.PROCESSOR)
"""What opens streams."""
ALONE: Final = {
    NodeKind.PICKER: (frozenset({PICKER_CONFIG}), NodeKind.WORKER),
    NodeKind.PROCESSOR: (frozenset(PROCESSOR_TYPES), NodeKind.PROCESSOR_WORKER),
}
"""Whose nodes are sent something each for itself: the types, and as what."""


class Audience(NamedTuple):
    """All nodes that are sent the same."""

    kind: NodeKind
    name: str
    """Of the pool, gateway or processor; of one node alone ``POOL/ID``."""


def worker_audience(node: Node, kind: NodeKind) -> Audience | None:
    """Of one node alone; None when nodes of its kind are all sent the same."""
    return Audience(ALONE[kind][1], f"{node.cluster}/{node.id}") if kind in ALONE else None


def keeper_of(node_id: str) -> str:
    """What keeps an Envoy's last good configuration beside it."""
    return f"{node_id}-keeper"


def kind_of(type_url: str) -> NodeKind:
    """What asks for this type first."""
    if type_url.startswith(ENVOY_TYPES) or type_url == STATIC_GATEWAY:
        return NodeKind.GATEWAY
    return NodeKind.PROCESSOR if type_url in PROCESSOR_TYPES else NodeKind.PICKER
