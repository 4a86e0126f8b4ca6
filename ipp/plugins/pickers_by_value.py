"""What profile pickers share that look a value up: exact first, then the longest pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def named(profiles: Mapping[str, str], default: str) -> Sequence[tuple[str, str]]:
    """Every profile that is named, with the parameter it is named in."""
    return [*((profile, f"profiles.{value}") for value, profile in profiles.items()), (default, "default")]


def profile_of(value: str, profiles: Mapping[str, str], default: str) -> str:
    """The profile of a value."""
    found = profiles.get(value)
    if found is not None and not value.endswith("*"):
        return found
    best, length = default, -1
    for pattern, profile in profiles.items():
        if pattern.endswith("*") and len(pattern) > length and value.startswith(pattern[:-1]):
            best, length = profile, len(pattern)
    return best
