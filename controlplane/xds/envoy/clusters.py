"""Envoy's clusters: one per pool, one per picker; and what names a pool's endpoints.

A pool's cluster takes the address the picker chose (`override_host`), from metadata, which a client cannot
write, and from nowhere else: Envoy 1.40 tries the address of every source in turn, so a second source would
send the first retry to the endpoint that has just failed. Without a choice, or when the chosen endpoint
failed, the fallback policy decides: round robin for a pool that fails open, a subset that no endpoint belongs
to for one that fails closed. A picker's cluster is health-checked quickly and without a panic threshold. Both
are needed for failing open in full duplex mode: Envoy passes a request on without the picker only when it
knows that there is no usable one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.xds.envoy.shapes import ListenerShape, PickerShape, PoolShape
from dataplane.headers import DESTINATION_ENDPOINT, DESTINATION_ENDPOINT_SERVED, LB_NAMESPACE

TYPES = "type.googleapis.com/envoy"

CONNECTIONS_CAP = 50_000
"""Circuit breakers count, they do not pace: pacing is the picker's task."""

ALL_BUT_ONE_PERCENT = 99
"""Of the endpoints of a pool, rounded down: one of up to 100 always stays, be it the only one."""

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"

UPSTREAM_IDLE_TIMEOUT_S = 20
"""Shorter than a model server keeps a connection, so that Envoy seldom sends into one being closed."""


def pool_cluster_name(pool: str) -> str:
    """Name of the cluster that holds a pool's endpoints."""
    return f"pool-{pool}"


PROCESSOR_CLUSTER = "ipp"
"""Holds the payload processor. Pools' clusters have prefixes, so the name is free."""


def picker_cluster_name(pool: str) -> str:
    """Name of the cluster that holds a pool's picker."""
    return f"epp-{pool}"


def followed(source: Mapping[str, Any]) -> dict[str, Any]:
    """Endpoints that Envoy follows at a config source."""
    return {"type": "EDS", "eds_cluster_config": {"eds_config": dict(source)}}


def listed(pool: str, endpoints: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Endpoints that stay."""
    return {"type": "STATIC", "load_assignment": load_assignment(pool_cluster_name(pool), endpoints)}


def pool_cluster(pool: PoolShape, endpoints: Mapping[str, Any]) -> dict[str, Any]:
    """Cluster of a pool's endpoints, which are ``followed`` or ``listed``."""
    return {
        "name": pool_cluster_name(pool.name),
        **endpoints,
        "connect_timeout": "1s",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": circuit_breakers(),
        "outlier_detection": unreachable(),
        "load_balancing_policy": {"policies": [override_host(pool)]},
        "typed_extension_protocol_options": {
            HTTP_OPTIONS: {
                "@type": f"{TYPES}.extensions.upstreams.http.v3.HttpProtocolOptions",
                "common_http_protocol_options": {"idle_timeout": f"{UPSTREAM_IDLE_TIMEOUT_S}s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
    }


def override_host(pool: PoolShape) -> dict[str, Any]:
    """Load-balancing policy: the picker's choice, and what happens without one."""
    return policy(
        "override_host",
        "OverrideHost",
        override_host_sources=[
            {"metadata": {"key": LB_NAMESPACE, "path": [{"key": DESTINATION_ENDPOINT}]}},
        ],
        selected_host_key={"key": LB_NAMESPACE, "path": [{"key": DESTINATION_ENDPOINT_SERVED}]},
        fallback_policy={"policies": [policy("round_robin", "RoundRobin") if pool.fail_open else nobody()]},
    )


def nobody() -> dict[str, Any]:
    """Policy under which no endpoint is ever eligible."""
    return policy(
        "subset",
        "Subset",
        fallback_policy="NO_FALLBACK",
        subset_selectors=[{"keys": ["pointsman-never"], "fallback_policy": "NO_FALLBACK"}],
        subset_lb_policy={"policies": [policy("round_robin", "RoundRobin")]},
    )


def policy(name: str, message: str, **fields: Any) -> dict[str, Any]:
    """Wrap a load-balancing policy the way Envoy wants it."""
    return {
        "typed_extension_config": {
            "name": f"envoy.load_balancing_policies.{name}",
            "typed_config": {
                "@type": f"{TYPES}.extensions.load_balancing_policies.{name}.v3.{message}",
                **fields,
            },
        }
    }


def picker_cluster(pool: PoolShape, max_body_bytes: int) -> dict[str, Any]:
    """Cluster of a pool's picker."""
    return service_cluster(picker_cluster_name(pool.name), pool.picker, max_body_bytes)


def processor_clusters(shape: ListenerShape) -> list[dict[str, Any]]:
    """That of the payload processor, if there is one."""
    if shape.processor is None:
        return []
    return [service_cluster(PROCESSOR_CLUSTER, shape.processor.where, shape.max_body_bytes)]


def service_cluster(name: str, picker: PickerShape | None, max_body_bytes: int) -> dict[str, Any]:
    """Cluster of an ext_proc service."""
    return {
        "name": name,
        "type": "STATIC" if picker is None or is_ip(picker.address) else "STRICT_DNS",
        "connect_timeout": "0.25s",
        "per_connection_buffer_limit_bytes": max_body_bytes,
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": circuit_breakers(),
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "0.2s",
                "no_traffic_interval": "0.2s",
                "unhealthy_interval": "0.2s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": EXT_PROC_SERVICE},
                **({"transport_socket_match_criteria": {"health": True}} if is_tls(picker) else {}),
            }
        ],
        "outlier_detection": gone_at_once(),
        "typed_extension_protocol_options": {
            HTTP_OPTIONS: {
                "@type": f"{TYPES}.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    "http2_protocol_options": {"connection_keepalive": {"interval": "1s", "timeout": "2s"}}
                },
            }
        },
        **(own_certificates() if is_tls(picker) else {}),
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [] if picker is None else [{"lb_endpoints": [picker_endpoint(picker)]}],
        },
    }


def picker_endpoint(picker: PickerShape) -> dict[str, Any]:
    """Where a picker answers, and where it says that it does."""
    return {
        "endpoint": {
            "address": socket_address(picker.address, picker.port),
            "health_check_config": {"port_value": picker.health_port},
        }
    }


def own_certificates() -> dict[str, Any]:
    """TLS to pickers, whose certificates are drawn by themselves; health checks go in clear."""
    context = f"{TYPES}.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    plain = f"{TYPES}.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
    return {
        "transport_socket_matches": [
            {
                "name": "health",
                "match": {"health": True},
                "transport_socket": {"name": "raw_buffer", "typed_config": {"@type": plain}},
            }
        ],
        "transport_socket": {
            "name": "tls",
            "typed_config": {"@type": context, "common_tls_context": {"alpn_protocols": ["h2"]}},
        },
    }


def is_tls(picker: PickerShape | None) -> bool:
    """Whether a picker is spoken to in TLS."""
    return picker is not None and picker.is_tls


def is_ip(address: str) -> bool:
    """Whether Envoy has nothing to resolve."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def gone_at_once() -> dict[str, Any]:
    """Leave a picker out once several streams in a row broke, until the health check has noticed as well.

    In a row, so that one client whose streams break cannot take the picker away from the others.
    """
    return {
        **only_local_origin(failures=5),
        "max_ejection_percent": 100,
        "interval": "0.1s",
        "base_ejection_time": "0.5s",
        "max_ejection_time": "0.5s",
    }


def unreachable() -> dict[str, Any]:
    """Leave an endpoint out while nobody listens at it; what a model server answers never counts against it.

    The picker hears of a dead server as well, from its metrics. This is for requests without a picker, for
    retries, and for the moments until the picker knows.
    """
    return {
        **only_local_origin(failures=2),
        "max_ejection_percent": ALL_BUT_ONE_PERCENT,
        "interval": "0.1s",
        "base_ejection_time": "1s",
        "max_ejection_time": "5s",
    }


def only_local_origin(failures: int) -> dict[str, Any]:
    """Eject after so many connections or streams in a row that broke; every other detector is off."""
    off = ("consecutive_5xx", "consecutive_gateway_failure", "success_rate", "local_origin_success_rate")
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": failures,
        "enforcing_consecutive_local_origin_failure": 100,
        **{f"enforcing_{name}": 0 for name in off},
    }


def circuit_breakers() -> dict[str, Any]:
    """One threshold for everything."""
    limits = ("max_connections", "max_pending_requests", "max_requests")
    return {"thresholds": [{**dict.fromkeys(limits, CONNECTIONS_CAP), "max_retries": 1000}]}


def socket_address(address: str, port: int) -> dict[str, Any]:
    """Address message."""
    return {"socket_address": {"address": address, "port_value": port}}


def load_assignment(cluster: str, endpoints: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """The endpoints of a cluster as (address, port)."""
    return {
        "cluster_name": cluster,
        "endpoints": [
            {
                "lb_endpoints": [
                    {"endpoint": {"address": socket_address(address, port)}} for address, port in endpoints
                ]
            }
        ],
    }


def endpoint_assignment(pool: str, endpoints: Iterable[tuple[str, int]], version: int) -> Mapping[str, Any]:
    """Content of a file Envoy follows: the pool's endpoints."""
    return {
        "version_info": str(version),
        "resources": [
            {
                "@type": f"{TYPES}.config.endpoint.v3.ClusterLoadAssignment",
                **load_assignment(pool_cluster_name(pool), endpoints),
            }
        ],
    }
