"""Whom a stream is opened for: a bound token or certificate opens those of what it is bound to, no others.

What a gateway is sent holds the private key of its certificate, so only a token that was made for that
gateway opens its streams, whosever it is. Pickers and payload processors are sent no secrets: any worker's
token opens theirs unless it is bound to something else.
"""

from __future__ import annotations

from typing import Final

from controlplane.core.roles import Actor, BoundTo
from controlplane.xds.nodes import NodeKind, keeper_of
from dataplane.xds.messages import Node

_BOUND_TO: Final = {
    NodeKind.PICKER: BoundTo.POOL,
    NodeKind.GATEWAY: BoundTo.GATEWAY,
    NodeKind.PROCESSOR: BoundTo.PROCESSOR,
}


def refusal(actor: Actor, node: Node, kind: NodeKind, *, by: str = "token") -> str:
    """Why this stream is not opened for who has shown a token, or a certificate; empty when it is."""
    binding = actor.binding
    if binding is None:
        if kind is not NodeKind.GATEWAY:
            return ""
        return (
            f"gateway {node.cluster} is sent its private key, so it needs a token of its own: "
            f"'pointsman controlplane token USER NAME --gateway {node.cluster}' makes one"
        )
    wanted = _BOUND_TO[kind]
    if (binding.kind, binding.name) != (wanted, node.cluster):
        return f"the {by} is bound to the {binding.kind} {binding.name}, not to the {wanted} {node.cluster}"
    if binding.node and node.id not in {binding.node, keeper_of(binding.node)}:
        return f"the {by} is bound to the node {binding.node}, not to {node.id}"
    return ""
