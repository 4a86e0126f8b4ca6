"""What documents of model routes may say: which requests, to which targets, and what happens when one fails.

Weights split the requests of one priority; the next priority gets what the one before cannot serve.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from dataplane.config.mutations import BodyMutation, HeaderMutation
from dataplane.config.values import DurationText, ModelName, ModelPattern, Name, Text, check_patterns, seconds
from dataplane.errors import ConfigError

MAX_TARGETS: Final = 128
MAX_FALLBACKS: Final = 8
MAX_STATUS_CODES: Final = 32
RETRIABLE_4XX: Final = frozenset({408, 409, 425, 429})
"""Other refusals of a request would be refused again by the same provider."""


class _Section(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """A part of a document."""


class RouteTarget(_Section, frozen=True, kw_only=True):
    """One place that may serve the request."""

    provider: Name | None = None
    pool: Name | None = None
    model_name_override: ModelName | None = None
    """The model to ask for there; left out, the one the client names."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    """Share among targets of the same priority; 0 turns the target off."""
    priority: Annotated[int, msgspec.Meta(ge=0, le=127)] = 0
    """Lower ones first."""
    header_mutation: HeaderMutation | None = None
    """Beyond the provider's; for one header or field the target's counts."""
    body_mutation: BodyMutation | None = None

    def __post_init__(self) -> None:
        _check_place(self.provider, self.pool)
        told = {"headerMutation": self.header_mutation, "bodyMutation": self.body_mutation}
        for field, value in told.items():
            if value is not None and self.pool is not None:
                raise ConfigError("is for providers; requests to pools are not translated", path=field)


class RouteFallback(_Section, frozen=True, kw_only=True):
    """Where a request goes that its target refuses for a reason that another one may not have."""

    on: Literal["ContextLengthExceeded", "ContentFiltered", "Unauthorized"]
    provider: Name | None = None
    pool: Name | None = None
    model_name_override: ModelName | None = None

    def __post_init__(self) -> None:
        _check_place(self.provider, self.pool)


def _check_place(provider: str | None, pool: str | None) -> None:
    if (provider is None) == (pool is None):
        raise ConfigError("must have either provider or pool", path="provider")


class RouteBackOff(_Section, frozen=True, kw_only=True):
    """How long to wait before the next attempt: doubling, with jitter."""

    base_interval: DurationText
    max_interval: DurationText

    def __post_init__(self) -> None:
        base, most = seconds(self.base_interval, "baseInterval"), seconds(self.max_interval, "maxInterval")
        if base is not None and most is not None and most < base:
            raise ConfigError("is shorter than baseInterval", path="maxInterval")


class RouteRetryOn(_Section, frozen=True, kw_only=True):
    """What is worth another attempt."""

    http_status_codes: list[Annotated[int, msgspec.Meta(ge=400, le=599)]] | None = None
    triggers: list[Literal["connect-failure", "reset", "gateway-error", "5xx"]] | None = None

    def __post_init__(self) -> None:
        codes = self.http_status_codes or []
        if len(codes) > MAX_STATUS_CODES:
            raise ConfigError(f"has more than {MAX_STATUS_CODES} codes", path="httpStatusCodes")
        for index, code in enumerate(codes):
            if code < 500 and code not in RETRIABLE_4XX:
                usable = ", ".join(map(str, sorted(RETRIABLE_4XX)))
                raise ConfigError(
                    f"{code} would be answered again; of 4xx use {usable}", path=f"httpStatusCodes[{index}]"
                )
        if not codes and not self.triggers:
            raise ConfigError("names nothing; give httpStatusCodes or triggers")


class RouteRetry(_Section, frozen=True, kw_only=True):
    """How often a request is tried again, as long as nothing of the response has been sent."""

    num_retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    num_attempts_per_priority: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    """After so many attempts the next priority has its turn."""
    back_off: RouteBackOff | None = None
    retry_on: RouteRetryOn | None = None


class RouteTimeouts(_Section, frozen=True, kw_only=True):
    """How long a request may take."""

    request: DurationText | None = None
    """All attempts and the whole response."""
    backend_request: DurationText | None = None
    """One attempt."""
    stream_idle: DurationText | None = None
    """Nothing from the target for so long."""

    def __post_init__(self) -> None:
        total = seconds(self.request, "request")
        for field, text in (("backendRequest", self.backend_request), ("streamIdle", self.stream_idle)):
            found = seconds(text, field)
            if total is not None and found is not None and found > total:
                raise ConfigError(f"is longer than request, {self.request}", path=field)


class ModelRouteSpec(_Section, frozen=True, kw_only=True):
    """``ModelRoute.spec``. Of several routes the one with the longest matching pattern is taken."""

    models: list[ModelPattern]
    targets: list[RouteTarget]
    fallbacks: list[RouteFallback] | None = None
    retry: RouteRetry | None = None
    timeouts: RouteTimeouts | None = None
    models_owned_by: Text | None = None
    """``owned_by`` in the list of models."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("names no model", path="models")
        check_patterns(self.models, "models")
        if not 0 < len(self.targets) <= MAX_TARGETS:
            raise ConfigError(f"has {len(self.targets)} targets; give 1 to {MAX_TARGETS}", path="targets")
        if not any(target.weight for target in self.targets):
            raise ConfigError("are all turned off by weight 0", path="targets")
        if len(self.fallbacks or ()) > MAX_FALLBACKS:
            raise ConfigError(f"has more than {MAX_FALLBACKS} fallbacks", path="fallbacks")
        self._check_time()

    def _check_time(self) -> None:
        """Each attempt must have its time, or retries exist on paper only."""
        if self.timeouts is None or self.retry is None:
            return
        total = seconds(self.timeouts.request, "timeouts.request")
        each = seconds(self.timeouts.backend_request, "timeouts.backendRequest")
        attempts = self.retry.num_retries + 1
        if total is not None and each is not None and each * attempts > total:
            raise ConfigError(
                f"leaves no time for {attempts} attempts of {self.timeouts.backend_request}",
                path="timeouts.request",
            )
