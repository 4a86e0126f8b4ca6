"""The Envoy of the benchmark: one listener, one route, one cluster, with or without an ext_proc filter.

What every variant shares is written once, so that variants differ by the filter and by nothing else. The
listener and the admin interface take free ports, which Envoy reports.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from dataplane.headers import (
    DESTINATION_ENDPOINT,
    DESTINATION_ENDPOINT_SERVED,
    LB_NAMESPACE,
    SUBSET_NAMESPACE,
)

TYPES = "type.googleapis.com/envoy.extensions"
STAT_PREFIX = "bench"
MODEL_SERVERS = "model-servers"


class Mode(StrEnum):
    """What of an exchange Envoy sends to the ext_proc server."""

    FULL_DUPLEX = "full-duplex"
    """Request and response: headers, bodies as they arrive, trailers."""
    REQUEST_ONLY = "request-only"
    """The request alone."""


class Balancing(StrEnum):
    """How the cluster chooses among its endpoints."""

    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    LEAST_REQUEST = "least-request"
    """Of two endpoints drawn by lot, the one with fewer requests open through this Envoy."""
    PICKED = "picked"
    """The endpoint the picker names; round robin when it names none."""


PROCESSING_MODES: dict[Mode, dict[str, str]] = {
    Mode.FULL_DUPLEX: {
        "request_header_mode": "SEND",
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_header_mode": "SEND",
        "response_body_mode": "FULL_DUPLEX_STREAMED",
        "response_trailer_mode": "SEND",
    },
    Mode.REQUEST_ONLY: {
        "request_header_mode": "SEND",
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_header_mode": "SKIP",
        "response_body_mode": "NONE",
        "response_trailer_mode": "SKIP",
    },
}


def bootstrap(
    endpoints: Sequence[str], balancing: Balancing, *, ext_proc: str = "", mode: Mode = Mode.FULL_DUPLEX
) -> dict[str, Any]:
    """The whole configuration. `endpoints` and `ext_proc` are `IP:PORT`; without the latter, no filter."""
    filters = [typed_filter("envoy.filters.http.router", "filters.http.router.v3.Router")]
    clusters = [model_cluster(endpoints, balancing)]
    if ext_proc:
        filters.insert(0, ext_proc_filter(mode))
        clusters.append(ext_proc_cluster(ext_proc))
    return {
        "admin": {"address": address("127.0.0.1:0")},
        "static_resources": {"listeners": [listener(filters)], "clusters": clusters},
    }


def address(text: str) -> dict[str, Any]:
    """`IP:PORT` as a socket address."""
    host, _, port = text.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def typed(type_name: str, **fields: Any) -> dict[str, Any]:
    """A message of Envoy's extension API, marked with its type."""
    return {"@type": f"{TYPES}.{type_name}", **fields}


def typed_filter(name: str, type_name: str, **fields: Any) -> dict[str, Any]:
    """An entry of a filter chain."""
    return {"name": name, "typed_config": typed(type_name, **fields)}


def listener(filters: list[dict[str, Any]]) -> dict[str, Any]:
    """HTTP/1.1 on a free port; every path goes to the model servers, without a time limit."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": MODEL_SERVERS, "timeout": "0s"}}
    manager = typed_filter(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=STAT_PREFIX,
        codec_type="HTTP1",
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=filters,
    )
    return {"name": "bench", "address": address("127.0.0.1:0"), "filter_chains": [{"filters": [manager]}]}


def ext_proc_filter(mode: Mode) -> dict[str, Any]:
    """The filter as a gateway for inference pools configures it."""
    return typed_filter(
        "envoy.filters.http.ext_proc",
        "filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "ext-proc"}},
        processing_mode=PROCESSING_MODES[mode],
        message_timeout="30s",
        metadata_options={
            "forwarding_namespaces": {"untyped": [LB_NAMESPACE, SUBSET_NAMESPACE]},
            "receiving_namespaces": {"untyped": [LB_NAMESPACE]},
        },
    )


def locality(endpoints: Sequence[str], cluster: str) -> dict[str, Any]:
    """A static set of endpoints."""
    return {
        "cluster_name": cluster,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(text)}} for text in endpoints]}],
    }


UNBOUNDED = {
    "thresholds": [{"max_connections": 40_000, "max_pending_requests": 40_000, "max_requests": 40_000}]
}
"""Circuit breakers that never break: the load is the benchmark's to bound."""


def model_cluster(endpoints: Sequence[str], balancing: Balancing) -> dict[str, Any]:
    """The model servers."""
    policy = {
        Balancing.ROUND_ROBIN: typed("load_balancing_policies.round_robin.v3.RoundRobin"),
        Balancing.RANDOM: typed("load_balancing_policies.random.v3.Random"),
        Balancing.LEAST_REQUEST: typed("load_balancing_policies.least_request.v3.LeastRequest"),
        Balancing.PICKED: picked_policy(),
    }[balancing]
    return {
        "name": MODEL_SERVERS,
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": UNBOUNDED,
        "load_assignment": locality(endpoints, MODEL_SERVERS),
        "load_balancing_policy": policies(balancing, policy),
    }


def policies(name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """A load balancing policy list with one entry."""
    return {"policies": [{"typed_extension_config": {"name": name, "typed_config": policy}}]}


def picked_policy() -> dict[str, Any]:
    """The endpoint in the picker's metadata, and where Envoy writes the one it really used."""
    key = {"key": LB_NAMESPACE, "path": [{"key": DESTINATION_ENDPOINT}]}
    return typed(
        "load_balancing_policies.override_host.v3.OverrideHost",
        override_host_sources=[{"metadata": key}, {"header": DESTINATION_ENDPOINT}],
        selected_host_key={"key": LB_NAMESPACE, "path": [{"key": DESTINATION_ENDPOINT_SERVED}]},
        fallback_policy=policies("fallback", typed("load_balancing_policies.round_robin.v3.RoundRobin")),
    )


def ext_proc_cluster(server: str) -> dict[str, Any]:
    """The ext_proc server, over HTTP/2 without TLS."""
    kind = "upstreams.http.v3.HttpProtocolOptions"
    options = typed(kind, explicit_http_config={"http2_protocol_options": {}})
    return {
        "name": "ext-proc",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": UNBOUNDED,
        "typed_extension_protocol_options": {f"envoy.extensions.{kind}": options},
        "load_assignment": locality([server], "ext-proc"),
    }
