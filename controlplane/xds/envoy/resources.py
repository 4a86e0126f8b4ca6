"""All resources of one gateway, from shapes to what Envoy is sent; and the same as one static configuration.

Clusters and endpoints are made pool by pool and remembered, so a change costs what has changed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.xds.envoy.clusters import (
    followed,
    listed,
    picker_cluster,
    picker_cluster_name,
    pool_cluster,
    pool_cluster_name,
    processor_clusters,
)
from controlplane.xds.envoy.encode import REMEMBERED, encode, encode_endpoints
from controlplane.xds.envoy.listener import connection_cap, listener
from controlplane.xds.envoy.routes import route_configuration
from controlplane.xds.envoy.shapes import CONTROL_PLANE, ListenerShape, PoolShape
from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from dataplane.xds.messages import Resource

ROUTES_NAME: Final = "public"
REMEMBERED_ROUTES: Final = 64

Endpoints = tuple[tuple[str, int], ...]
"""(address, port), sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What the listener shows in TLS."""

    name: str
    chain: str
    """PEM."""
    key: str
    """PEM; private."""

    def secret(self) -> dict[str, Any]:
        """As Envoy's ``TlsCertificate``."""
        return {
            "certificate_chain": {"inline_string": self.chain},
            "private_key": {"inline_string": self.key},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayShape:
    """Everything of one gateway."""

    listener: ListenerShape
    pools: tuple[PoolShape, ...]
    endpoints: Mapping[str, Endpoints]
    """Of each pool."""
    certificate: Certificate | None


def gateway_resources(gateway: GatewayShape) -> dict[str, dict[str, Resource]]:
    """Type -> name -> resource, as one control plane stream carries them."""
    shape = gateway.listener
    clusters: dict[str, Resource] = {}
    endpoints: dict[str, Resource] = {}
    for cluster in processor_clusters(shape):
        clusters[cluster["name"]] = Resource(cluster["name"], encode(CLUSTER, cluster))
    for pool in gateway.pools:
        for name, value in _clusters(pool, shape.max_body_bytes):
            clusters[name] = Resource(name, value)
        name = pool_cluster_name(pool.name)
        endpoints[name] = Resource(name, encode_endpoints(name, gateway.endpoints.get(pool.name, ())))
    found = {
        LISTENER: {"public": Resource("public", _listener(shape))},
        ROUTES: {ROUTES_NAME: Resource(ROUTES_NAME, _routes(gateway.pools, shape))},
        CLUSTER: clusters,
        ENDPOINTS: endpoints,
        SECRET: {},
    }
    if (shown := gateway.certificate) is not None:
        value = encode(SECRET, {"name": shown.name, "tls_certificate": shown.secret()})
        found[SECRET] = {shown.name: Resource(shown.name, value)}
    return found


def no_resources() -> dict[str, dict[str, Resource]]:
    """What an Envoy of a gateway that is not there is sent: it listens nowhere."""
    return {type_url: {} for type_url in (LISTENER, ROUTES, CLUSTER, ENDPOINTS, SECRET)}


@functools.lru_cache(REMEMBERED)
def _clusters(pool: PoolShape, max_body_bytes: int) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return (
        (pool_cluster_name(pool.name), encode(CLUSTER, pool_cluster(pool, followed(CONTROL_PLANE)))),
        (picker_cluster_name(pool.name), encode(CLUSTER, picker_cluster(pool, max_body_bytes))),
    )


@functools.lru_cache(REMEMBERED_ROUTES)
def _routes(pools: tuple[PoolShape, ...], shape: ListenerShape) -> bytes:
    return encode(ROUTES, route_configuration(ROUTES_NAME, pools, shape))


@functools.lru_cache(REMEMBERED_ROUTES)
def _listener(shape: ListenerShape) -> bytes:
    routes = {"rds": {"route_config_name": ROUTES_NAME, "config_source": CONTROL_PLANE}}
    secret = {"name": shape.tls_secret, "sds_config": CONTROL_PLANE}
    certificate = {"tls_certificate_sds_secret_configs": [secret]} if shape.tls_secret else None
    return encode(LISTENER, listener(shape, routes, certificate))


def static_configuration(gateway: GatewayShape) -> dict[str, Any]:
    """The same without a control plane: a bootstrap without ``node`` and ``admin``."""
    shape = gateway.listener
    routes = route_configuration(ROUTES_NAME, gateway.pools, shape)
    shown = None if gateway.certificate is None else {"tls_certificates": [gateway.certificate.secret()]}
    return {
        "overload_manager": connection_cap(),
        "static_resources": {
            "listeners": [listener(shape, {"route_config": routes}, shown)],
            "clusters": [
                *processor_clusters(shape),
                *_static_clusters(gateway.pools, gateway.endpoints, shape.max_body_bytes),
            ],
        },
    }


def _static_clusters(
    pools: Sequence[PoolShape], endpoints: Mapping[str, Endpoints], max_body_bytes: int
) -> list[dict[str, Any]]:
    return [
        cluster
        for pool in pools
        for cluster in (
            pool_cluster(pool, listed(pool.name, endpoints.get(pool.name, ()))),
            picker_cluster(pool, max_body_bytes),
        )
    ]
