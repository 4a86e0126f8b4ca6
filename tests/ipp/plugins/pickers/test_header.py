"""``header-profile-picker``: exact values first, then the longest pattern."""

from __future__ import annotations

import pytest

from tests.support.processors import Rig, headers_of
from tests.support.profiles import BODY, OPEN, STRICT, two_profiles


@pytest.mark.parametrize(
    ("value", "expected"), [("gold", STRICT), ("gold-1", OPEN), ("silver-9", STRICT), ("silver-x-1", OPEN)]
)
def test_profiles_by_header(value: str, expected: dict[str, str]) -> None:
    profiles = {"gold": "strict", "silver-*": "strict", "silver-x*": "open"}
    parameters = {"headerName": "X-Tier", "profiles": profiles, "default": "open"}
    rig = Rig(two_profiles({"type": "header-profile-picker", "name": "pick", "parameters": parameters}))
    assert headers_of(rig.ask(BODY, ("x-tier", value))) == expected
    assert headers_of(rig.ask(BODY)) == OPEN
