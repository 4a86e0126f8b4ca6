"""The section ``resilience`` of an ``EndpointPickerConfig``: what happens to endpoints that fail or come
back.

An extension of the field's format: a document without it means the defaults, which eject what plainly fails
and warm up what is new. All values are bounded here, so that the picker need not doubt them.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from dataplane.config.decode import Duration
from dataplane.errors import ConfigError

MAX_TIME_S: Final = 86_400.0
"""Longest period of any setting here: a day."""

MAX_FALLBACK_ENDPOINTS: Final = 16
"""Longest list of endpoints in one answer."""


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of the section."""


def _check(name: str, seconds: float) -> None:
    if not 0 < seconds <= MAX_TIME_S:
        raise ConfigError("must be more than 0s and at most 24h", path=name)


class EjectionSpec(_Section, frozen=True):
    """When an endpoint that fails requests is left out, and for how long."""

    enabled: bool = True
    """Whether endpoints are ejected at all."""
    consecutive_failures: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 5
    """Failures in a row that eject; 0 = never for that."""
    failure_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Share of failed requests within ``window`` that ejects."""
    min_requests: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 20
    """Requests within ``window`` below which the share says nothing; 0 = the share never ejects."""
    window: Duration = Duration(10.0)
    """Period over which the share is taken, from a first failure on; also how long a readmitted endpoint must
    go without ejection for its back-off to shrink by one step."""
    base_time: Duration = Duration(5.0)
    """How long a first ejection lasts."""
    factor: Annotated[float, msgspec.Meta(ge=1, le=10)] = 2.0
    """By how much each further ejection lasts longer."""
    max_time: Duration = Duration(120.0)
    """Longest ejection."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.1
    """Share by which an ejection is drawn longer or shorter, so that endpoints do not return together."""
    max_ejected_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Share of the pool that may be ejected at once, rounded down; one may always, all never."""

    def __post_init__(self) -> None:
        for name, value in (("window", self.window), ("baseTime", self.base_time)):
            _check(name, value)
        if not self.base_time <= self.max_time <= MAX_TIME_S:
            raise ConfigError("must be at least baseTime and at most 24h", path="maxTime")


class SlowStartSpec(_Section, frozen=True):
    """How an endpoint that is new or back gets its share of the load."""

    enabled: bool = True
    """Whether endpoints warm up at all."""
    window: Duration = Duration(30.0)
    """How long it takes to the full share."""
    initial_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Part of its share that an endpoint gets at first; from there it grows evenly."""

    def __post_init__(self) -> None:
        _check("window", self.window)


class ResilienceSpec(_Section, frozen=True):
    """What happens to endpoints that fail or come back."""

    ejection: EjectionSpec = EjectionSpec()
    """Leaving out endpoints that fail requests."""
    slow_start: SlowStartSpec = SlowStartSpec()
    """Warming up endpoints that are new or back."""
    fallback_endpoints: Annotated[int, msgspec.Meta(ge=1, le=MAX_FALLBACK_ENDPOINTS)] = 1
    """Endpoints named in an answer, for a proxy that walks the list when one fails; 1 = the choice alone."""
