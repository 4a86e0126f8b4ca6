"""What documents of tenants and virtual keys may say.

Tenant and key are two levels, and both are judged on every request: each limit and each budget of either must
have room, and a model must be allowed by both. So a key can narrow what its tenant may do and never widen it.
What is left out does not limit. A limit of nothing is not a limit but a suspension, and is said as one.
"""

from __future__ import annotations

import zoneinfo
from typing import Annotated, Final, Literal

import msgspec

from dataplane.config.values import (
    Amount,
    Count,
    Currency,
    ModelPattern,
    Moment,
    Name,
    Text,
    check_moment,
    check_patterns,
)
from dataplane.errors import ConfigError

MAX_BUDGETS: Final = 8
MAX_ALERTS: Final = 8
UTC: Final = "UTC"
MAX_FAIRNESS_WEIGHT: Final = 1000

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
"""SHA-256 of a key's text, hexadecimal."""

KeyPrefix = Annotated[str, msgspec.Meta(min_length=1, max_length=24, pattern=r"^[!-~]+$(?!\n)")]
"""The beginning of a key, to tell keys apart."""

Percent = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class _Section(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """A part of a document."""


class Limits(_Section, frozen=True, kw_only=True):
    """How much at once, and how fast. A request that would exceed one gets 429 and when to come back."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    token_kind: Literal["total", "input", "output"] = "total"  # noqa: S105 - no secret
    """Which tokens count for tokensPerMinute."""
    max_concurrent: Count | None = None
    """Requests in flight at the same time."""

    def __post_init__(self) -> None:
        if self.requests_per_minute is self.tokens_per_minute is self.max_concurrent is None:
            raise ConfigError("limits nothing; give requestsPerMinute, tokensPerMinute or maxConcurrent")


class Budget(_Section, frozen=True, kw_only=True):
    """How much may be spent in a period: of a currency, or of tokens."""

    period: Literal["hour", "day", "week", "month", "total"]
    """Aligned to the calendar in the tenant's time zone, weeks begin on Monday; ``total`` never ends."""
    amount: Amount | None = None
    currency: Currency | None = None
    tokens: Count | None = None
    enforcement: Literal["hard", "soft"] = "hard"
    """``hard``: requests are refused when nothing is left. ``soft``: alerts alone."""
    alert_at_percent: list[Percent] | None = None

    def __post_init__(self) -> None:
        if (self.amount is None) == (self.tokens is None):
            raise ConfigError("must have either amount with currency, or tokens", path="amount")
        if (self.amount is None) != (self.currency is None):
            raise ConfigError("goes with amount: both or neither", path="currency")
        if self.amount is not None and not self.amount.strip("0."):
            raise ConfigError("must be more than nothing; to stop a tenant, suspend it", path="amount")
        if self.alert_at_percent is not None:
            _check_alerts(self.alert_at_percent)


def _check_alerts(percents: list[int]) -> None:
    if not 0 < len(percents) <= MAX_ALERTS or percents != sorted(set(percents)):
        raise ConfigError(
            f"must be 1 to {MAX_ALERTS} different percentages, the lowest first", path="alertAtPercent"
        )


def check_budgets(budgets: list[Budget] | None) -> None:
    """``ConfigError`` for too many budgets, or two of which one would hide the other."""
    if budgets is None:
        return
    if not 0 < len(budgets) <= MAX_BUDGETS:
        raise ConfigError(f"has {len(budgets)} budgets; give 1 to {MAX_BUDGETS}", path="budgets")
    seen: set[tuple[str, str | None, str]] = set()
    for index, budget in enumerate(budgets):
        what = (budget.period, budget.currency, budget.enforcement)
        if what in seen:
            unit = budget.currency or "tokens"
            raise ConfigError(
                f"is a second {budget.enforcement} budget of {unit} per {budget.period}",
                path=f"budgets[{index}]",
            )
        seen.add(what)


class TenantSpec(_Section, frozen=True, kw_only=True):
    """``Tenant.spec``."""

    display_name: Text | None = None
    suspended: bool = False
    """All keys of the tenant are refused while this is true."""
    fairness_weight: Annotated[int, msgspec.Meta(ge=1, le=MAX_FAIRNESS_WEIGHT)] = 1
    """Share of a busy pool, in proportion to the weights of the others that wait."""
    objective: Name | None = None
    """InferenceObjective of requests that name none."""
    allowed_models: list[ModelPattern] | None = None
    limits: Limits | None = None
    budgets: list[Budget] | None = None
    time_zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = UTC
    """Where the calendar of budgets is read."""

    def __post_init__(self) -> None:
        check_patterns(self.allowed_models, "allowedModels")
        check_budgets(self.budgets)
        _check_zone(self.time_zone)


NO_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
"""Names in the time zone database that mean another zone on each machine, or none."""


def _check_zone(name: str) -> None:
    if name == UTC:
        return  # known without the time zone database, which a small machine lacks
    try:
        if name in NO_ZONES:
            raise ValueError(name)
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        message = "is no time zone known here; use a name such as UTC or Europe/Berlin"
        raise ConfigError(message, path="timeZone") from None


class PreviousKey(_Section, frozen=True, kw_only=True):
    """The key before the present one, which still holds for a while."""

    key_digest: Digest
    key_prefix: KeyPrefix | None = None
    valid_until: Moment

    def __post_init__(self) -> None:
        check_moment(self.valid_until, "validUntil")


class VirtualKeySpec(_Section, frozen=True, kw_only=True):
    """``VirtualKey.spec``. Of a key only a digest is known, and its beginning."""

    tenant: Name
    key_digest: Digest | None = None
    """Left out, an existing key stays as it is."""
    key_prefix: KeyPrefix | None = None
    previous: PreviousKey | None = None
    expires_at: Moment | None = None
    revoked_at: Moment | None = None
    """Once given it stays: a revoked key never comes back."""
    objective: Name | None = None
    allowed_models: list[ModelPattern] | None = None
    limits: Limits | None = None
    budgets: list[Budget] | None = None

    def __post_init__(self) -> None:
        check_patterns(self.allowed_models, "allowedModels")
        check_budgets(self.budgets)
        check_moment(self.expires_at, "expiresAt")
        check_moment(self.revoked_at, "revokedAt")
        if self.key_digest is None and (self.key_prefix is not None or self.previous is not None):
            raise ConfigError(
                "is missing, and keyPrefix and previous mean nothing without it", path="keyDigest"
            )
        if self.previous is not None and self.previous.key_digest == self.key_digest:
            raise ConfigError("is the present key's", path="previous.keyDigest")
