"""What an Envoy is started with: where its control plane is, and who it is. All else comes from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from controlplane.xds.envoy.clusters import HTTP_OPTIONS, TYPES, is_ip, socket_address
from controlplane.xds.envoy.listener import connection_cap
from controlplane.xds.envoy.shapes import CONTROL_PLANE

CLUSTER_NAME: Final = "control-plane"
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyIdentity:
    """One Envoy of a gateway."""

    node_id: str
    gateway: str
    admin_port: int
    """On loopback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneAddress:
    """The discovery server as Envoy reaches it."""

    host: str
    port: int
    token: str
    """Empty = a certificate stands in for it."""
    ca_file: str = ""
    """Empty = no TLS."""
    cert_file: str = ""
    key_file: str = ""


def bootstrap(envoy: EnvoyIdentity, server: ControlPlaneAddress) -> dict[str, Any]:
    """The configuration for ``envoy --config-path``. It holds the token: for its owner's eyes only."""
    grpc: dict[str, Any] = {"envoy_grpc": {"cluster_name": CLUSTER_NAME}}
    if server.token:
        grpc["initial_metadata"] = [{"key": "authorization", "value": f"Bearer {server.token}"}]
    return {
        **identified(envoy),
        "overload_manager": connection_cap(),
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [grpc],
            },
            "cds_config": dict(CONTROL_PLANE),
            "lds_config": dict(CONTROL_PLANE),
        },
        "static_resources": {"clusters": [control_plane_cluster(server)]},
    }


def without_control_plane(envoy: EnvoyIdentity, static: Mapping[str, Any], admin: str) -> dict[str, Any]:
    """The same of a gateway that is known as a whole (``resources.static_configuration``).

    ``admin`` is the path of a socket: the port is left to the Envoy that takes over.
    """
    return {**identified(envoy), "admin": {"address": {"pipe": {"path": admin, "mode": 0o600}}}, **static}


def identified(envoy: EnvoyIdentity) -> dict[str, Any]:
    """Who it is, and where it tells how it fares."""
    return {
        "node": {"id": envoy.node_id, "cluster": envoy.gateway},
        "admin": {"address": socket_address(LOOPBACK, envoy.admin_port)},
    }


def control_plane_cluster(server: ControlPlaneAddress) -> dict[str, Any]:
    """Cluster of the discovery server."""
    endpoint = {"endpoint": {"address": socket_address(server.host, server.port)}}
    return {
        "name": CLUSTER_NAME,
        "type": "STATIC" if is_ip(server.host) else "STRICT_DNS",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            HTTP_OPTIONS: {
                "@type": f"{TYPES}.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    "http2_protocol_options": {"connection_keepalive": {"interval": "10s", "timeout": "5s"}}
                },
            }
        },
        **({"transport_socket": _tls(server)} if server.ca_file else {}),
        "load_assignment": {"cluster_name": CLUSTER_NAME, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _tls(server: ControlPlaneAddress) -> dict[str, Any]:
    kind = "dns" if not is_ip(server.host) else "ip_address"
    match = {"san_type": kind.upper(), "matcher": {"exact": server.host}}
    common: dict[str, Any] = {
        "alpn_protocols": ["h2"],
        "validation_context": {
            "trusted_ca": {"filename": server.ca_file},
            "match_typed_subject_alt_names": [match],
        },
    }
    if server.cert_file:
        files = {
            "certificate_chain": {"filename": server.cert_file},
            "private_key": {"filename": server.key_file},
        }
        common["tls_certificates"] = [files]
    context: dict[str, Any] = {
        "@type": f"{TYPES}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": common,
    }
    if kind == "dns":
        context["sni"] = server.host
    return {"name": "tls", "typed_config": context}
