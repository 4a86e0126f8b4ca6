"""``tenant-profile-picker``: tenants by name, everybody else by the default."""

from __future__ import annotations

from tests.support.processors import Rig, headers_of
from tests.support.profiles import BODY, OPEN, STRICT, two_profiles


def test_profiles_by_tenant() -> None:
    parameters = {"profiles": {"acme": "strict"}, "default": "open"}
    rig = Rig(two_profiles({"type": "tenant-profile-picker", "name": "pick", "parameters": parameters}))
    assert headers_of(rig.ask(BODY, ("x-llm-d-inference-fairness-id", "acme"))) == STRICT
    assert headers_of(rig.ask(BODY, ("x-llm-d-inference-fairness-id", "acme2"))) == OPEN
    assert rig.counted("pointsman_ipp_requests_total", profile="strict") == 1
    assert rig.counted("pointsman_ipp_requests_total", profile="open") == 1
