"""Providers, routes and prices: documents in and out, references, and what is wrong with them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.core.documents import apply, export
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.providers.models import ModelPrice, ModelRoute, ModelRouteLink, ModelRoutePattern, Provider
from controlplane.providers.services import ModelPriceService, ModelRouteService, ProviderService
from tests.support.controlplane import (
    CREDENTIAL,
    OPERATOR,
    POOL,
    PRICE,
    PROVIDER,
    ROUTE,
    VIEWER,
    client,
    example,
)

pytestmark = pytest.mark.django_db

PROVIDERS, ROUTES, PRICES = ProviderService(), ModelRouteService(), ModelPriceService()
ALL = [POOL, CREDENTIAL, PROVIDER, ROUTE, PRICE]


def refused(kind: str, **spec: Any) -> list[str]:
    """What is wrong with an example whose spec has these fields instead; None takes one away."""
    document = example(kind, "other")
    document["spec"] = {
        field: value for field, value in (document["spec"] | spec).items() if value is not None
    }
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, [document])
    return [
        f"{detail.path}: {detail.message}".removeprefix("documents[0].") for detail in caught.value.details
    ]


def route(name: str, *targets: dict[str, Any], models: list[str] | None = None) -> dict[str, Any]:
    document = example("ModelRoute", name)
    document["spec"] = {"models": models or [name], "targets": list(targets)}
    return document


def test_everything_comes_back_as_it_was_written() -> None:
    assert apply(OPERATOR, ALL).warnings == []
    shown = {document["kind"]: document["spec"] for document in export(VIEWER)}
    assert shown == {document["kind"]: document["spec"] for document in ALL}
    assert {step.action for step in apply(OPERATOR, export(VIEWER)).steps} == {"unchanged"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"type": "opena"}, "spec.type: must be one of openai, anthropic"),
        ({"type": "custom"}, "spec.baseURL: is required for a provider of type custom"),
        ({"baseURL": "ftp://a"}, "spec.baseURL: expected str matching regex"),
        (
            {"baseURL": "https://u:p@a"},
            "spec.baseURL: must not hold a user or password; use a ProviderCredential",
        ),
        ({"baseURL": "https://a?k=1"}, "spec.baseURL: must end with the path"),
        ({"baseURL": "https://a:99999"}, "spec.baseURL: has no host, or a port that is none"),
        ({"baseURL": "https://[::1"}, "spec.baseURL: has no host, or a port that is none"),
        ({"baseURL": "https://:80"}, "spec.baseURL: has no host, or a port that is none"),
        ({"schema": {"name": "Cohere"}}, "spec.schema.name: of a provider of type openai must be OpenAI"),
        ({"type": "azure", "baseURL": "https://a"}, "spec.schema.version: is required: the api-version"),
        ({"type": "bedrock", "credentialRef": None}, "spec.credentialRef: is required: the region"),
        (
            {"type": "anthropic"},
            "spec.credentialRef.name: openai-key is of type APIKey; a provider of type anthropic",
        ),
        (
            {"headerMutation": {"set": [{"name": "X-API-Key", "value": "k"}]}},
            "spec.headerMutation.set[0].name: would show a secret to everybody; use a ProviderCredential",
        ),
        (
            {"headerMutation": {"remove": ["Content-Length"]}},
            "spec.headerMutation.remove: Content-Length is the gateway's own business",
        ),
        ({"headerMutation": {"remove": ["a", "A"]}}, "spec.headerMutation.remove: names A twice"),
        ({"headerMutation": {"remove": [":path"]}}, "spec.headerMutation.remove[0]: expected str"),
        (
            {"bodyMutation": {"remove": [f"f{number}" for number in range(17)]}},
            "spec.bodyMutation.remove: has 17 entries; give at most 16",
        ),
        (
            {"bodyMutation": {"set": [{"path": "model", "value": "x"}]}},
            "spec.bodyMutation.set: must leave the model alone; use modelNameOverride",
        ),
        (
            {"bodyMutation": {"set": [{"path": "a.b", "value": "1"}]}},
            "spec.bodyMutation.set[0].path: expected str",
        ),
        ({"credentialRef": {"name": "none"}}, "spec.credentialRef.name: there is no ProviderCredential none"),
    ],
)
def test_providers_that_could_not_work_are_refused(spec: dict[str, Any], problem: str) -> None:
    apply(OPERATOR, [CREDENTIAL])
    (found,) = refused("Provider", **spec)
    assert found.startswith(problem)
    assert not Provider.objects.exists()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"models": []}, "spec.models: names no model"),
        ({"models": ["gpt-*"]}, "spec.models[0]: gpt-* is served by ModelRoute chat"),
        ({"targets": []}, "spec.targets: has 0 targets; give 1 to 128"),
        ({"targets": [{}]}, "spec.targets[0].provider: must have either provider or pool"),
        ({"targets": [{"provider": "openai", "weight": 0}]}, "spec.targets: are all turned off by weight 0"),
        (
            {"targets": [{"pool": "pool", "bodyMutation": {"remove": ["user"]}}]},
            "spec.targets[0].bodyMutation: is for providers; requests to pools are not translated",
        ),
        ({"targets": [{"provider": "nobody"}]}, "spec.targets: there is no Provider nobody"),
        (
            {"fallbacks": [{"on": "Unauthorized", "provider": "openai", "pool": "pool"}]},
            "spec.fallbacks[0].provider: must have either provider or pool",
        ),
        (
            {"retry": {"numRetries": 4}},
            "spec.timeouts.request: leaves no time for 5 attempts of 30s",
        ),
        (
            {"retry": {"retryOn": {"httpStatusCodes": [500, 401]}}},
            "spec.retry.retryOn.httpStatusCodes[1]: 401 would be answered again; of 4xx use 408, 409, 425",
        ),
        ({"retry": {"retryOn": {}}}, "spec.retry.retryOn: names nothing; give httpStatusCodes or triggers"),
        (
            {"retry": {"backOff": {"baseInterval": "2s", "maxInterval": "1s"}}},
            "spec.retry.backOff.maxInterval: is shorter than baseInterval",
        ),
        ({"timeouts": {"request": "5"}}, "spec.timeouts.request: expected str"),
        ({"timeouts": {"request": "0s"}}, "spec.timeouts.request: must be more than nothing"),
        (
            {"timeouts": {"request": "1s", "streamIdle": "2s"}, "retry": None},
            "spec.timeouts.streamIdle: is longer than request, 1s",
        ),
    ],
)
def test_routes_that_could_not_work_are_refused(spec: dict[str, Any], problem: str) -> None:
    apply(OPERATOR, ALL)
    (found,) = refused("ModelRoute", **spec)
    assert found.startswith(problem)
    assert [row.name for row in ModelRoute.objects.all()] == ["chat"]
    assert (ModelRoutePattern.objects.count(), ModelRouteLink.objects.count()) == (2, 2)


def test_a_provider_stays_while_a_route_or_a_price_names_it() -> None:
    apply(OPERATOR, ALL)
    with pytest.raises(
        ConflictError, match="Provider openai is named by ModelRoute chat; delete these first"
    ):
        PROVIDERS.delete(OPERATOR, "openai")
    changed = copy.deepcopy(ROUTE)
    changed["spec"] = {"models": ["chat"], "targets": [{"pool": "pool"}]}
    ROUTES.update(OPERATOR, "chat", changed)
    with pytest.raises(ConflictError, match="is named by ModelPrice gpt-4o-2026"):
        PROVIDERS.delete(OPERATOR, "openai")
    PRICES.delete(OPERATOR, "gpt-4o-2026")
    PROVIDERS.delete(OPERATOR, "openai")
    assert not Provider.objects.exists()
    answer = client().delete("/api/v1/pools/pool", HTTP_IF_MATCH='"1"')
    assert (answer.status_code, answer.json()["message"]) == (
        409,
        "InferencePool pool is named by ModelRoute chat; delete these first",
    )


def test_a_pool_that_is_not_there_yet_is_a_warning() -> None:
    (warning,) = apply(OPERATOR, [route("a", {"pool": "later"})]).warnings
    assert (warning.path, warning.message) == (
        "documents[0].spec.targets",
        "there is no InferencePool later yet; until then this has no effect",
    )


def test_a_pattern_is_free_again_when_its_route_lets_it_go() -> None:
    apply(OPERATOR, [route("a", {"pool": "p"}, models=["x", "y"])])
    apply(OPERATOR, [route("a", {"pool": "p"}, models=["y"]), route("b", {"pool": "p"}, models=["x"])])
    ROUTES.delete(OPERATOR, "a")
    apply(OPERATOR, [route("b", {"pool": "p"}, models=["x", "y"])])
    assert sorted(ModelRoutePattern.objects.values_list("pattern", flat=True)) == ["x", "y"]


def test_routes_are_found_by_model_provider_and_pool_once_each() -> None:
    apply(OPERATOR, [*ALL, route("many", {"pool": "pool"}, {"pool": "p2"}, {"pool": "pool", "priority": 1})])

    api = client()

    def names(query: str) -> list[str]:
        found = api.get(f"/api/v1/modelroutes?{query}").json()
        assert found["total"] == len(found["items"])
        return [item["metadata"]["name"] for item in found["items"]]

    assert names("model=gpt-*") == names("provider=openai") == ["chat"]
    assert names("pool=pool") == ["chat", "many"]
    assert names("pool=pool&provider=openai") == ["chat"]
    assert names("provider=") == names("model=gpt") == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"provider": None}, "spec.provider: must have either provider or pool"),
        ({"pool": "pool"}, "spec.provider: must have either provider or pool"),
        ({"validUntil": "2025-01-01T00:00:00Z"}, "spec.validUntil: must be after validFrom"),
        ({"validFrom": "0001-01-01T00:00:00+10:00"}, "spec.validFrom: must be in the years 2000 to 2999"),
        ({"currency": "usd"}, "spec.currency: expected str matching regex"),
        ({"perMillionTokens": {"input": "1"}}, "spec.perMillionTokens.output: is required"),
        ({"perMillionTokens": {"input": "-1", "output": "1"}}, "spec.perMillionTokens.input: expected str"),
        (
            {"model": "gpt-4o", "validFrom": "2027-01-01T00:00:00Z"},
            "spec.validFrom: overlaps ModelPrice gpt-4o-2026",
        ),
    ],
)
def test_prices_that_leave_a_doubt_are_refused(spec: dict[str, Any], problem: str) -> None:
    apply(OPERATOR, ALL)
    (found,) = refused("ModelPrice", **spec)
    assert found.startswith(problem)
    assert ModelPrice.objects.count() == 1


def test_one_price_follows_another() -> None:
    ended, following = copy.deepcopy(PRICE), copy.deepcopy(PRICE)
    ended["spec"]["validUntil"] = "2027-01-01T00:00:00Z"
    following["metadata"]["name"] = "gpt-4o-2027"
    following["spec"]["validFrom"] = "2027-01-01T01:00:00+01:00"
    apply(OPERATOR, [CREDENTIAL, PROVIDER, ended, following])
    between = copy.deepcopy(PRICE)
    between["metadata"]["name"] = "between"
    between["spec"] |= {"validFrom": "2026-06-01T00:00:00Z", "validUntil": "2026-07-01T00:00:00Z"}
    with pytest.raises(InvalidError, match="holds from 2026-01-01T00:00:00\\+00:00 until 2027-01-01"):
        PRICES.create(OPERATOR, between)
    assert ModelPrice.objects.count() == 2
