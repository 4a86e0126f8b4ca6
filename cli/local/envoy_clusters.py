"""Envoy's clusters for a plan: one per pool, one per picker; and the file that names a pool's endpoints.

A pool's cluster takes the address the picker chose (`override_host`), from metadata, which a client cannot
write, and from nowhere else: Envoy 1.40 tries the address of every source in turn, so a second source would
send the first retry to the endpoint that has just failed. Without a choice, or when the chosen endpoint
failed, the fallback policy decides: round robin for a pool that fails open, a subset that no endpoint belongs
to for one that fails closed. A picker's cluster is health-checked quickly and without a panic threshold. Both
are needed for failing open in full duplex mode: Envoy passes a request on without the picker only when it
knows that there is no usable one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cli.local.plan import Plan, PoolPlan
from dataplane.headers import DESTINATION_ENDPOINT, DESTINATION_ENDPOINT_SERVED, LB_NAMESPACE
from dataplane.processes.ports import LOOPBACK

TYPES = "type.googleapis.com/envoy"

CONNECTIONS_CAP = 50_000
"""Circuit breakers count, they do not pace: pacing is the picker's task."""

ALL_BUT_ONE_PERCENT = 99
"""Of the endpoints of a pool, rounded down: one of up to 100 always stays, be it the only one."""

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"

UPSTREAM_IDLE_TIMEOUT_S = 20
"""Shorter than a model server keeps a connection, so that Envoy seldom sends into one being closed."""


def pool_cluster_name(pool: PoolPlan) -> str:
    """Name of the cluster that holds a pool's endpoints."""
    return f"pool-{pool.name}"


def picker_cluster_name(pool: PoolPlan) -> str:
    """Name of the cluster that holds a pool's picker."""
    return f"epp-{pool.name}"


def pool_cluster(pool: PoolPlan) -> dict[str, Any]:
    """Cluster of a pool's endpoints."""
    return {
        "name": pool_cluster_name(pool),
        "type": "EDS",
        "eds_cluster_config": {
            "eds_config": {
                "resource_api_version": "V3",
                "path_config_source": {
                    "path": str(pool.cluster_file),
                    "watched_directory": {"path": str(pool.cluster_file.parent)},
                },
            }
        },
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


def override_host(pool: PoolPlan) -> dict[str, Any]:
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


def picker_cluster(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    """Cluster of a pool's picker."""
    return {
        "name": picker_cluster_name(pool),
        "type": "STATIC",
        "connect_timeout": "0.25s",
        "per_connection_buffer_limit_bytes": plan.max_body_bytes,
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
        "load_assignment": {
            "cluster_name": picker_cluster_name(pool),
            "endpoints": [
                {
                    "lb_endpoints": [
                        {
                            "endpoint": {
                                "address": socket_address(LOOPBACK, pool.grpc_port),
                                "health_check_config": {"port_value": pool.health_port},
                            }
                        }
                    ]
                }
            ],
        },
    }


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


def endpoint_assignment(
    pool: PoolPlan, endpoints: Iterable[tuple[str, int]], version: int
) -> Mapping[str, Any]:
    """Content of the file Envoy follows: the pool's endpoints as (address, port)."""
    return {
        "version_info": str(version),
        "resources": [
            {
                "@type": f"{TYPES}.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": pool_cluster_name(pool),
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {"endpoint": {"address": socket_address(address, port)}}
                            for address, port in endpoints
                        ]
                    }
                ],
            }
        ],
    }
