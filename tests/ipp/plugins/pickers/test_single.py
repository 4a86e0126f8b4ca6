"""``single-profile-picker``: the first profile, without anything being asked."""

from __future__ import annotations

from tests.support.processors import Rig, headers_of
from tests.support.profiles import BODY, STRICT, two_profiles


def test_the_first_profile_is_taken() -> None:
    rig = Rig(two_profiles({"type": "single-profile-picker", "name": "pick"}))
    assert headers_of(rig.ask(BODY)) == STRICT
