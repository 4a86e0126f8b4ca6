"""``model-profile-picker``: models by name and pattern, every other by the default."""

from __future__ import annotations

from tests.support.processors import Rig, headers_of
from tests.support.profiles import BODY, STRICT, two_profiles


def test_profiles_by_model() -> None:
    parameters = {"profiles": {"m": "strict", "gpt-*": "strict"}, "default": "open"}
    rig = Rig(two_profiles({"type": "model-profile-picker", "name": "pick", "parameters": parameters}))
    assert headers_of(rig.ask(BODY)) == STRICT
    assert headers_of(rig.ask({**BODY, "model": "gpt-5"})) == {"x-model": "gpt-5", "x-user": "u"}
    assert headers_of(rig.ask({**BODY, "model": "llama"})) == {"x-model": "llama"}
