"""Durations in parameters, written as in Go."""

from __future__ import annotations

from dataplane.errors import ConfigError
from dataplane.units import parse_duration


def positive_seconds(text: str, field: str) -> float:
    """Seconds of a duration such as 5s. ``ConfigError`` at ``field`` for other text and for none at all."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error), path=field) from error
    if seconds <= 0:
        raise ConfigError(f"{text!r} is out of range; use more than 0s", path=field)
    return seconds
