"""Envoy's routes: from the model in the body to a pool and its picker, and answers for the rest.

The model is metadata here, put there by the body filter of `controlplane.xds.envoy.listener`:

    MODEL_KEY   the body's `model`, when it has one
    BODY_KEY    `missing` or `invalid`, when there is no model or no JSON

With a payload processor, the base model it names in a header comes before the body's model.

Order decides: a model some pool serves, a model nobody serves (404), a request without a usable model (to
the first pool's picker, whose answer says what is wrong and where), anything else (404).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.xds.envoy.clusters import TYPES, picker_cluster_name, pool_cluster_name
from controlplane.xds.envoy.shapes import ListenerShape, PoolShape
from dataplane.headers import BASE_MODEL_NAME

METADATA_NAMESPACE = "pointsman"
MODEL_KEY = "model"
BODY_KEY = "body"

PICKER_FILTER = "epp"

RETRIES = 3
"""Enough for a pool of four of which three die at once; dead endpoints are left out a moment later."""
RETRY_HOST_DRAWS = 8
"""How often round robin may be asked for an endpoint that has not been tried yet."""
RETRY_ON = "connect-failure,refused-stream,reset,retriable-status-codes"
"""`reset` covers an endpoint that dies before it has answered; 503 is a model server's "not me, not now"."""

INVALID_REQUEST = "invalid_request_error"


def route_configuration(name: str, pools: Sequence[PoolShape], shape: ListenerShape) -> dict[str, Any]:
    """All routes behind a listener of this shape."""
    found = routes(pools, shape)
    return {"name": name, "virtual_hosts": [{"name": name, "domains": ["*"], "routes": found}]}


def routes(pools: Sequence[PoolShape], shape: ListenerShape) -> list[dict[str, Any]]:
    """All routes, in order of precedence; a model that two pools serve is the first one's.

    A route says only where its picker is shown something else than the filter of the listener says.
    """
    serving = [(pool, models) for pool, models in served(pools) if models]

    def to(pool: PoolShape, match: dict[str, Any]) -> dict[str, Any]:
        return pool_route(pool, match, is_observed=shape.observe_responses)

    return [
        *model_listing(serving),
        *(to(pool, base_match(models)) for pool, models in serving if shape.processor is not None),
        *(to(pool, model_match(models)) for pool, models in serving),
        unknown_model(),
        *(to(pool, {"headers": [post()]}) for pool, _ in serving[:1]),
        unknown_path(),
    ]


def served(pools: Sequence[PoolShape]) -> Iterator[tuple[PoolShape, tuple[str, ...]]]:
    """Pools with the models that are theirs."""
    taken: set[str] = set()
    for pool in pools:
        models = tuple(model for model in pool.names if model not in taken)
        taken.update(models)
        yield pool, models


def model_match(models: tuple[str, ...]) -> dict[str, Any]:
    """Match a POST whose body names one of the models."""
    exact = [{"string_match": {"exact": model}} for model in models]
    value = exact[0] if len(exact) == 1 else {"or_match": {"value_matchers": exact}}
    return {"headers": [post()], "dynamic_metadata": [metadata(MODEL_KEY, value)]}


def base_match(models: tuple[str, ...]) -> dict[str, Any]:
    """Match a POST of which the payload processor says that one of the models is its base model."""
    exact = [re.escape(model) for model in models]
    pattern = {"safe_regex": {"regex": "|".join(exact)}} if len(exact) > 1 else {"exact": models[0]}
    return {"headers": [post(), {"name": BASE_MODEL_NAME, "string_match": pattern}]}


def post() -> dict[str, Any]:
    """Match the method of every inference request."""
    return {"name": ":method", "string_match": {"exact": "POST"}}


def metadata(key: str, value: dict[str, Any]) -> dict[str, Any]:
    """Match what the body filter found."""
    return {"filter": METADATA_NAMESPACE, "path": [{"key": key}], "value": value}


def pool_route(pool: PoolShape, match: dict[str, Any], *, is_observed: bool) -> dict[str, Any]:
    """Send matching requests to a pool, through its own picker with its own failure mode."""
    observes = pool.observe_responses
    modes = {} if observes == is_observed else {"processing_mode": processing_mode(is_observed=observes)}
    return {
        "name": pool.name,
        "match": {"prefix": "/", **match},
        "route": {
            "cluster": pool_cluster_name(pool.name),
            "timeout": "0s",
            "retry_policy": {
                "retry_on": RETRY_ON,
                "retriable_status_codes": [503],
                "num_retries": RETRIES,
                "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
                "host_selection_retry_max_attempts": RETRY_HOST_DRAWS,
                "retry_host_predicate": [
                    {
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": {
                            "@type": f"{TYPES}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                        },
                    }
                ],
            },
        },
        "typed_per_filter_config": {
            PICKER_FILTER: {
                "@type": f"{TYPES}.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
                "overrides": {
                    "grpc_service": {"envoy_grpc": {"cluster_name": picker_cluster_name(pool.name)}},
                    "failure_mode_allow": pool.fail_open,
                    **modes,
                },
            }
        },
    }


def processing_mode(*, is_observed: bool) -> dict[str, Any]:
    """What a picker is shown: requests whole, of responses the head, and the rest where it has to know."""
    return {
        "request_header_mode": "SEND",
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_header_mode": "SEND",
        "response_body_mode": "FULL_DUPLEX_STREAMED" if is_observed else "NONE",
        "response_trailer_mode": "SEND" if is_observed else "SKIP",
    }


def model_listing(serving: Sequence[tuple[PoolShape, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Answer `GET /v1/models` and `GET /v1/models/<model>` for the models of all pools."""
    names = [(model, pool.name) for pool, models in serving for model in models]
    entries = [
        {"id": model.replace("%", "%%"), "object": "model", "created": 0, "owned_by": pool}
        for model, pool in names
    ]
    listing = answer("models", {"path": "/v1/models"}, 200, {"object": "list", "data": entries})
    single = [
        answer("model", {"path": f"/v1/models/{model}"}, 200, entry)
        for (model, _), entry in zip(names, entries, strict=True)
    ]
    for route in (listing, *single):
        route["match"]["headers"] = [{"name": ":method", "string_match": {"exact": "GET"}}]
    return [listing, *single]


def unknown_model() -> dict[str, Any]:
    """Refuse a model nobody serves."""
    match = {"headers": [post()], "dynamic_metadata": [metadata(MODEL_KEY, {"present_match": True})]}
    message = (
        f"The model '%DYNAMIC_METADATA({METADATA_NAMESPACE}:{MODEL_KEY})%' does not exist; see GET /v1/models"
    )
    error = {"message": message, "type": INVALID_REQUEST, "param": "model", "code": "model_not_found"}
    return answer("unknown-model", {"prefix": "/", **match}, 404, {"error": error})


def unknown_path() -> dict[str, Any]:
    """Refuse what is no inference request."""
    message = "Unknown request: %REQ(:METHOD)% %PATH(NQ)%; inference is POST, models are at GET /v1/models"
    error = {"message": message, "type": INVALID_REQUEST, "param": None, "code": "unknown_url"}
    return answer("unknown-path", {"prefix": "/"}, 404, {"error": error})


def answer(name: str, match: dict[str, Any], status: int, document: dict[str, Any]) -> dict[str, Any]:
    """Answer from Envoy itself, in JSON, without any picker."""
    return {
        "name": name,
        "match": match,
        "direct_response": {"status": status, "body_format": {"json_format": document}},
        "typed_per_filter_config": {
            PICKER_FILTER: {
                "@type": f"{TYPES}.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
                "disabled": True,
            }
        },
    }
