"""The rules of providers, model routes and model prices."""

from __future__ import annotations

from typing import Final

import msgspec
from django.db.models import Q

from controlplane.core.resources import Document, Reference, ResourceService
from controlplane.providers.credentials import CREDENTIAL, VERSIONS
from controlplane.providers.models import (
    ModelPrice,
    ModelRoute,
    ModelRouteLink,
    ModelRoutePattern,
    Provider,
    ProviderCredential,
)
from dataplane.config.providers import CREDENTIALS, ModelPriceSpec, ProviderSpec
from dataplane.config.routes import ModelRouteSpec
from dataplane.errors import ConfigError
from epp.objects import schema

PROVIDER: Final = "Provider"


class ProviderService(ResourceService[Provider]):
    """Providers."""

    kind = PROVIDER
    plural = "providers"
    versions = VERSIONS
    spec_type = ProviderSpec
    model = Provider
    references = (Reference(CREDENTIAL, "credential", "spec.credentialRef.name", required=True),)

    def check_change(self, row: Provider | None, spec: ProviderSpec, problems: list[ConfigError]) -> None:
        """The credential is of a type the provider understands."""
        if spec.credential_ref is None:
            return
        name, allowed = spec.credential_ref.name, CREDENTIALS[spec.type]
        held = ProviderCredential.objects.filter(name=name).values_list("type", flat=True).first()
        if held is not None and held not in allowed:
            message = f"{name} is of type {held}; a provider of type {spec.type} takes {' or '.join(allowed)}"
            problems.append(ConfigError(message, path="spec.credentialRef.name"))

    def assign(self, row: Provider, spec: ProviderSpec) -> None:
        """The spec without what it does not say."""
        row.type = spec.type
        row.credential = "" if spec.credential_ref is None else spec.credential_ref.name
        row.spec = msgspec.to_builtins(spec)

    def spec_of(self, row: Provider) -> Document:
        """As it was written, defaults left out."""
        spec: Document = row.spec
        return spec


class ModelRouteService(ResourceService[ModelRoute]):
    """Model routes."""

    kind = "ModelRoute"
    plural = "modelroutes"
    versions = VERSIONS
    spec_type = ModelRouteSpec
    model = ModelRoute
    references = (
        Reference(PROVIDER, "links__provider", "spec.targets", required=True),
        Reference(schema.POOL, "links__pool", "spec.targets"),
    )

    def check_change(self, row: ModelRoute | None, spec: ModelRouteSpec, problems: list[ConfigError]) -> None:
        """A pattern belongs to one route, so that it is clear which one is taken."""
        others = ModelRoutePattern.objects.filter(pattern__in=spec.models)
        if row is not None:
            others = others.exclude(route=row)
        taken = dict(others.values_list("pattern", "route__name"))
        problems += [
            ConfigError(f"{pattern} is served by {self.kind} {taken[pattern]}", path=f"spec.models[{index}]")
            for index, pattern in enumerate(spec.models)
            if pattern in taken
        ]

    def assign(self, row: ModelRoute, spec: ModelRouteSpec) -> None:
        """The spec without what it does not say."""
        row.spec = msgspec.to_builtins(spec)

    def link(self, row: ModelRoute, spec: ModelRouteSpec) -> None:
        """Patterns, and each provider and pool once."""
        row.patterns.all().delete()
        ModelRoutePattern.objects.bulk_create(
            ModelRoutePattern(route=row, pattern=pattern) for pattern in spec.models
        )
        places = dict.fromkeys(
            (place.provider, place.pool) for place in (*spec.targets, *(spec.fallbacks or ()))
        )
        row.links.all().delete()
        ModelRouteLink.objects.bulk_create(
            ModelRouteLink(route=row, provider=provider, pool=pool) for provider, pool in places
        )

    def spec_of(self, row: ModelRoute) -> Document:
        """As it was written, defaults left out."""
        spec: Document = row.spec
        return spec


class ModelPriceService(ResourceService[ModelPrice]):
    """Model prices."""

    kind = "ModelPrice"
    plural = "modelprices"
    versions = VERSIONS
    spec_type = ModelPriceSpec
    model = ModelPrice
    references = (
        Reference(PROVIDER, "provider", "spec.provider", required=True),
        Reference(schema.POOL, "pool", "spec.pool"),
    )

    def check_change(self, row: ModelPrice | None, spec: ModelPriceSpec, problems: list[ConfigError]) -> None:
        """At each moment a model has one price at one place."""
        others = ModelPrice.objects.filter(
            Q(valid_until=None) | Q(valid_until__gt=spec.valid_from),
            provider=spec.provider or "",
            pool=spec.pool or "",
            model=spec.model,
        )
        if spec.valid_until is not None:
            others = others.filter(valid_from__lt=spec.valid_until)
        if row is not None:
            others = others.exclude(pk=row.pk)
        if (other := others.order_by("valid_from").first()) is not None:
            until = "for good" if other.valid_until is None else f"until {other.valid_until.isoformat()}"
            message = (
                f"overlaps {self.kind} {other.name}, which holds from {other.valid_from.isoformat()} {until}"
            )
            problems.append(ConfigError(message, path="spec.validFrom"))

    def assign(self, row: ModelPrice, spec: ModelPriceSpec) -> None:
        """The spec without what it does not say."""
        row.provider, row.pool, row.model = spec.provider or "", spec.pool or "", spec.model
        row.valid_from, row.valid_until = spec.valid_from, spec.valid_until
        row.spec = msgspec.to_builtins(spec)

    def spec_of(self, row: ModelPrice) -> Document:
        """As it was written, defaults left out."""
        spec: Document = row.spec
        return spec
