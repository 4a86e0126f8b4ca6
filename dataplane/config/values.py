"""Values that several kinds of documents have in common: names, model patterns, amounts, moments, durations.

They stay text where a number would lose what was written: money is a decimal, never a float.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from dataplane.errors import ConfigError
from dataplane.units import parse_duration

MAX_PATTERNS: Final = 256
YEARS: Final = range(2000, 3000)
"""Of moments that documents may say."""

Name = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$(?!\n)")]
"""Name of another object."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
"""A word or two for people."""

ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f*]+$(?!\n)")]
"""A model as requests name it."""

ModelPattern = Annotated[
    str, msgspec.Meta(min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f*]*\*?$(?!\n)")
]
"""A model's name, or the beginning of names and then ``*``: ``llama-*``; ``*`` alone is every model."""

Amount = Annotated[str, msgspec.Meta(max_length=20, pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})?$(?!\n)")]
"""A decimal as text, such as ``"250.00"``: at most 12 digits before the point and 6 behind it."""

Currency = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{3}$(?!\n)")]
"""Three capital letters, as ISO 4217 has them."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""Date and time with an offset, as RFC 3339 writes them: ``2027-01-31T00:00:00Z``."""

DurationText = Annotated[str, msgspec.Meta(min_length=2, max_length=32, pattern=r"^[0-9.]+[a-zµ]+")]
"""A Go duration: ``250ms``, ``1m30s``."""

Count = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
"""How many; at least one."""


def check_patterns(patterns: list[str] | None, path: str, what: str = "model") -> None:
    """``ConfigError`` for a list of patterns of names that allows nothing, is too long or repeats itself."""
    if patterns is None:
        return
    if not patterns:
        raise ConfigError(f"names no {what}; leave it out to allow every {what}", path=path)
    if len(patterns) > MAX_PATTERNS:
        raise ConfigError(f"has {len(patterns)} patterns; give at most {MAX_PATTERNS}", path=path)
    if len(set(patterns)) < len(patterns):
        raise ConfigError(f"names a {what} twice", path=path)


def check_moment(moment: datetime | None, path: str) -> None:
    """``ConfigError`` for a moment that not every database and time zone can express."""
    if moment is not None and moment.year not in YEARS:
        raise ConfigError(f"must be in the years {YEARS.start} to {YEARS.stop - 1}", path=path)


def seconds(text: str | None, path: str) -> float | None:
    """Seconds of a duration, which must be more than none. ``ConfigError`` for what is no duration."""
    if text is None:
        return None
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error), path=path) from None
    if found <= 0:
        raise ConfigError("must be more than nothing", path=path)
    return found
