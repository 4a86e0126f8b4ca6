"""The order in which Envoy is told things, so that no request finds a route whose other end is not there.

    clusters, their endpoints, listeners, routes       what is new: an end before what leads to it
    routes, then clusters                              what is gone: what leads to it before the end

Envoy begins anew with a cluster that has changed, and waits for its endpoints until they are sent once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, NodeKind
from controlplane.xds.subscriptions import Rule

RULES: Final[Mapping[NodeKind, Mapping[str, Rule]]] = {
    NodeKind.GATEWAY: {
        SECRET: Rule(by_name=True),
        CLUSTER: Rule(kept_for=(LISTENER, ROUTES)),
        ENDPOINTS: Rule(by_name=True, named_by=CLUSTER),
        LISTENER: Rule(after=(CLUSTER, ENDPOINTS)),
        ROUTES: Rule(by_name=True, after=(CLUSTER, ENDPOINTS, LISTENER)),
    }
}
"""Kind of node -> type -> rule, in the order of sending."""
