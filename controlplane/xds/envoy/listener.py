"""The gateway's listener: a pure function from data to data. Its filters, in order:

    strip       removes headers by which a client could steer the picker, Envoy or a sidecar
    ipp         the payload processor over ext_proc, full duplex, where there is one
    body        reads `model` from the JSON body into metadata; the route is chosen again afterwards
    epp         the pool's Endpoint Picker over ext_proc, full duplex
    router      forwards, retries

The body filter waits for the whole request body, as the picker would have to anyway, so the connection's
buffer limit is the largest body. Request trailers are not accepted: Envoy 1.40 repeats the body to the
endpoint when a request with trailers passes a full-duplex ext_proc filter on a route with retries. Envoy's
own errors leave in the shape of the OpenAI API; what a picker answers is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.xds.envoy.clusters import PROCESSOR_CLUSTER, TYPES, socket_address
from controlplane.xds.envoy.routes import (
    BODY_KEY,
    METADATA_NAMESPACE,
    MODEL_KEY,
    PICKER_FILTER,
    processing_mode,
)
from controlplane.xds.envoy.shapes import ListenerShape, ProcessorShape
from dataplane.headers import (
    BASE_MODEL_NAME,
    DESTINATION_ENDPOINT,
    DESTINATION_ENDPOINT_SCORES,
    DESTINATION_ENDPOINT_SERVED,
    DESTINATION_ENDPOINT_SUBSET,
    DROPPED_REASON,
    LB_NAMESPACE,
    MODEL_NAME,
    SIDECAR_HEADERS,
    SUBSET_NAMESPACE,
)

PROCESSOR_FILTER = "ipp"
HTTP_FILTERS = f"{TYPES}.extensions.filters.http"

FORGEABLE_HEADERS = (
    DESTINATION_ENDPOINT,
    DESTINATION_ENDPOINT_SCORES,
    DESTINATION_ENDPOINT_SERVED,
    DESTINATION_ENDPOINT_SUBSET,
    DROPPED_REASON,
    MODEL_NAME,
    BASE_MODEL_NAME,
    *sorted(SIDECAR_HEADERS),
)
"""A client that could send these would choose the hosts that are connected to."""

DOWNSTREAM_CONNECTIONS_CAP = 10_000

MESSAGE_TIMEOUT_S = 5
"""For answers to response headers when the body is not observed; full duplex knows no message timeout."""
RETRY_AFTER_S = 1
"""How soon a client may try again after 503: a restarted picker or a retried endpoint takes about as long."""


def connection_cap() -> dict[str, Any]:
    """Refuse connections beyond the cap instead of running out of memory."""
    return {
        "resource_monitors": [
            {
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": f"{TYPES}.extensions.resource_monitors.downstream_connections.v3"
                    ".DownstreamConnectionsConfig",
                    "max_active_downstream_connections": DOWNSTREAM_CONNECTIONS_CAP,
                },
            }
        ]
    }


def listener(
    shape: ListenerShape, routes: Mapping[str, Any], certificate: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Build the public listener. ``routes`` are ``route_config`` or ``rds``.

    ``certificate`` is a ``DownstreamTlsContext``'s way to its certificate; None = no TLS.
    """
    chain: dict[str, Any] = {
        "filters": [
            {
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": connection_manager(shape, routes),
            }
        ]
    }
    if certificate is not None:
        chain["transport_socket"] = {
            "name": "tls",
            "typed_config": {
                "@type": f"{TYPES}.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["http/1.1"], **certificate},
            },
        }
    return {
        "name": "public",
        "address": socket_address(shape.address, shape.port),
        "per_connection_buffer_limit_bytes": shape.max_body_bytes,
        "filter_chains": [chain],
    }


def connection_manager(shape: ListenerShape, routes: Mapping[str, Any]) -> dict[str, Any]:
    """HTTP/1 only, hence no request trailers; clients are never trusted with `x-envoy-*` headers."""
    manager = f"{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    return {
        "@type": manager,
        "stat_prefix": "public",
        "codec_type": "HTTP1",
        # nginx asks in HTTP/1.0 unless told otherwise, and so do some load generators.
        "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "pointsman"},
        "use_remote_address": True,
        "internal_address_config": {"cidr_ranges": [{"address_prefix": "255.255.255.255", "prefix_len": 32}]},
        "normalize_path": True,
        "preserve_external_request_id": True,
        "request_headers_timeout": "10s",
        "stream_idle_timeout": f"{shape.stream_idle_timeout_s:g}s",
        "http_filters": [
            strip_filter(),
            *([] if shape.processor is None else [processor_filter(shape.processor)]),
            body_filter(),
            picker_filter(shape),
            router_filter(),
        ],
        **routes,
        "local_reply_config": {"mappers": local_replies(shape)},
        "access_log": [access_log(shape)],
    }


def strip_filter() -> dict[str, Any]:
    """Remove what only the gateway itself may set."""
    return {
        "name": "strip",
        "typed_config": {
            "@type": f"{HTTP_FILTERS}.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": [{"remove": name} for name in FORGEABLE_HEADERS]},
        },
    }


def body_filter() -> dict[str, Any]:
    """Put the body's model into metadata, whatever the content type: many clients send a wrong one."""
    found = {"metadata_namespace": METADATA_NAMESPACE, "key": MODEL_KEY}
    state = {"metadata_namespace": METADATA_NAMESPACE, "key": BODY_KEY}
    return {
        "name": "body",
        "typed_config": {
            "@type": f"{HTTP_FILTERS}.json_to_metadata.v3.JsonToMetadata",
            "request_rules": {
                "rules": [
                    {
                        "selectors": [{"key": "model"}],
                        "on_present": found,
                        "on_missing": {**state, "value": "missing"},
                        "on_error": {**state, "value": "invalid"},
                    }
                ],
                "allow_content_types_regex": {"regex": ".*"},
                "allow_empty_content_type": True,
            },
        },
    }


def processor_filter(processor: ProcessorShape) -> dict[str, Any]:
    """ext_proc before routing; routes are matched again on what it sets."""
    return {
        "name": PROCESSOR_FILTER,
        "typed_config": {
            "@type": f"{HTTP_FILTERS}.ext_proc.v3.ExternalProcessor",
            "stat_prefix": PROCESSOR_FILTER,
            "grpc_service": {"envoy_grpc": {"cluster_name": PROCESSOR_CLUSTER}},
            "message_timeout": f"{MESSAGE_TIMEOUT_S}s",
            "status_on_error": {"code": "ServiceUnavailable"},
            "failure_mode_allow": processor.fail_open,
            "processing_mode": processing_mode(is_observed=processor.sees_responses),
        },
    }


def picker_filter(shape: ListenerShape) -> dict[str, Any]:
    """ext_proc; which picker, and what happens without it, is said by the route."""
    return {
        "name": PICKER_FILTER,
        "typed_config": {
            "@type": f"{HTTP_FILTERS}.ext_proc.v3.ExternalProcessor",
            "stat_prefix": PICKER_FILTER,
            "grpc_service": {"envoy_grpc": {"cluster_name": shape.default_picker}},
            "message_timeout": f"{MESSAGE_TIMEOUT_S}s",
            "status_on_error": {"code": "ServiceUnavailable"},
            "processing_mode": processing_mode(is_observed=shape.observe_responses),
            "metadata_options": {
                "forwarding_namespaces": {"untyped": [LB_NAMESPACE, SUBSET_NAMESPACE]},
                "receiving_namespaces": {"untyped": [LB_NAMESPACE]},
            },
        },
    }


def router_filter() -> dict[str, Any]:
    """Forward."""
    return {
        "name": "router",
        "typed_config": {"@type": f"{HTTP_FILTERS}.router.v3.Router", "suppress_envoy_headers": True},
    }


def local_replies(shape: ListenerShape) -> list[dict[str, Any]]:
    """Rewrite Envoy's own errors as JSON, most specific first."""
    own = "!response.code_details.startsWith('pointsman_') && response.code_details != 'direct_response'"
    too_large = f"The request body is larger than {shape.max_body_bytes} bytes"
    details = "%LOCAL_REPLY_BODY% (%RESPONSE_CODE_DETAILS%)"
    # Why Envoy gave up names parts that are nobody's business outside; the access log has it by request id.
    logged = "; the gateway's access log says why under request id %REQ(X-REQUEST-ID)%"
    return [
        local_reply(
            f"{own} && response.code == 413", too_large, "invalid_request_error", "request_too_large"
        ),
        local_reply(f"{own} && response.code < 500", details, "invalid_request_error", "bad_request"),
        local_reply(
            f"{own} && response.code == 504",
            f"No answer came in time{logged}",
            "server_error",
            "upstream_timeout",
        ),
        local_reply(
            own,
            f"No model server can take the request right now{logged}",
            "server_error",
            "upstream_unavailable",
            retry_after_s=RETRY_AFTER_S,
        ),
    ]


def local_reply(
    expression: str, message: str, kind: str, code: str, *, retry_after_s: int | None = None
) -> dict[str, Any]:
    """One rule: a CEL expression over the response, and the error object to answer with."""
    retry_after = {"header": {"key": "retry-after", "value": str(retry_after_s)}}
    return {
        **({} if retry_after_s is None else {"headers_to_add": [retry_after]}),
        "filter": {
            "extension_filter": {
                "name": "envoy.access_loggers.extension_filters.cel",
                "typed_config": {
                    "@type": f"{TYPES}.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                    "expression": expression,
                },
            }
        },
        "body_format_override": {
            "json_format": {"error": {"message": message, "type": kind, "param": None, "code": code}}
        },
    }


def access_log(shape: ListenerShape) -> dict[str, Any]:
    """One JSON object per request."""
    return {
        "name": "file",
        "typed_config": {
            "@type": f"{TYPES}.extensions.access_loggers.file.v3.FileAccessLog",
            "path": shape.access_log,
            "log_format": {
                "json_format": {
                    "time": "%START_TIME%",
                    "request_id": "%REQ(X-REQUEST-ID)%",
                    "method": "%REQ(:METHOD)%",
                    "path": "%PATH(NQ)%",
                    "model": f"%DYNAMIC_METADATA({METADATA_NAMESPACE}:{MODEL_KEY})%",
                    "route": "%ROUTE_NAME%",
                    "picked": f"%DYNAMIC_METADATA({LB_NAMESPACE}:{DESTINATION_ENDPOINT})%",
                    "endpoint": "%UPSTREAM_HOST%",
                    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                    "status": "%RESPONSE_CODE%",
                    "details": "%RESPONSE_CODE_DETAILS%",
                    "flags": "%RESPONSE_FLAGS%",
                    "bytes_received": "%BYTES_RECEIVED%",
                    "bytes_sent": "%BYTES_SENT%",
                    "ttfb_ms": "%RESPONSE_DURATION%",
                    "duration_ms": "%DURATION%",
                },
                "json_format_options": {"sort_properties": False},
            },
        },
    }
