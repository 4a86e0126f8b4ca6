"""Envoy's resources from plain data to protobuf; what has been encoded once is remembered.

The only module of the builders that knows Envoy's messages.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.extensions.load_balancing_policies.subset.v3 import subset_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf import json_format
from google.protobuf.message import Message
from xds.type.v3 import typed_struct_pb2

from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET

MESSAGES: Final[Mapping[str, Any]] = {
    CLUSTER: cluster_pb2.Cluster,
    ENDPOINTS: endpoint_pb2.ClusterLoadAssignment,
    LISTENER: listener_pb2.Listener,
    ROUTES: route_pb2.RouteConfiguration,
    SECRET: secret_pb2.Secret,
}
EXTENSIONS: Final = (
    cel_pb2,
    ext_proc_pb2,
    file_pb2,
    header_mutation_pb2,
    http_connection_manager_pb2,
    http_protocol_options_pb2,
    json_to_metadata_pb2,
    previous_hosts_pb2,
    raw_buffer_pb2,
    round_robin_pb2,
    router_pb2,
    subset_pb2,
    tls_pb2,
    typed_struct_pb2,
)
"""What ``@type`` may name: loaded, so that protobuf knows it."""
NEWER: Final = frozenset(
    {"type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost"}
)
"""Messages with fields that only Envoy knows: they travel as plain data, which Envoy converts."""
TYPED_STRUCT: Final = "type.googleapis.com/xds.type.v3.TypedStruct"
REMEMBERED: Final = 8192


def encode(type_url: str, resource: Mapping[str, Any]) -> bytes:
    """One resource. ``json_format.ParseError`` when it is none of its type."""
    return serialised(json_format.ParseDict(_plain(resource), MESSAGES[type_url]()))


def _plain(value: Any) -> Any:
    """The same with what is ``NEWER`` as plain data."""
    if isinstance(value, Mapping):
        name = value.get("@type")
        if name in NEWER:
            inner = {key: item for key, item in value.items() if key != "@type"}
            return {"@type": TYPED_STRUCT, "type_url": name, "value": inner}
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@functools.lru_cache(REMEMBERED)
def encode_endpoints(cluster: str, endpoints: tuple[tuple[str, int], ...]) -> bytes:
    """The endpoints of a cluster; thousands of them are too many for the way by plain data."""
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=cluster)
    add = message.endpoints.add().lb_endpoints.add
    for address, port in endpoints:
        socket = add().endpoint.address.socket_address
        socket.address, socket.port_value = address, port
    return serialised(message)


def serialised(message: Message) -> bytes:
    """The same bytes for the same message."""
    return message.SerializeToString(deterministic=True)
