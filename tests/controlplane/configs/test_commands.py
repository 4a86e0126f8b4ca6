"""Rollouts through the command, with nobody to follow them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.controlplane import POOL, picker_config
from tests.support.controlplane_command import Command, serving

pytestmark = pytest.mark.integration


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Command]:
    """A control plane that answers, and holds a draft."""
    with serving(Command(tmp_path), tmp_path / "log") as command:
        command.says("apply", "-", text=yaml.safe_dump_all([POOL, picker_config(rollout="manual")]))
        yield command


def test_a_rollout_is_planned_started_halted_and_told(served: Command) -> None:
    assert served.refusal("rollout", "status", "standard") == (
        "pointsman rollout: error: EndpointPickerConfig standard was never published\n"
    )
    assert served.says("rollout", "start", "standard", "--dry-run").splitlines()[0] == (
        "revision 1 for the pools pool; active: none yet"
    )
    assert served.refusal("rollout", "status", "house") == (
        "pointsman rollout: error: there is no EndpointPickerConfig house; if it is of another kind, say "
        "PayloadProcessorConfig/house or GuardrailPolicy/house\n"
    )
    assert served.refusal("rollout", "status", "GuardrailPolicy/house") == (
        "pointsman rollout: error: there is no GuardrailPolicy house\n"
    )
    started = served.says(
        "rollout", "start", "standard", "--canary", "10%", "--max-error-share", "0.05", "--min-requests", "9"
    )
    assert started == "rollout 1 of revision 1, canary 10% is canary\n"
    assert served.says("rollout", "status", "standard").splitlines() == [
        "rollout 1 of revision 1, canary 10% is canary",
        "active revision: none yet",
        "0 of 0 workers run it",
    ]
    halted = served.says("rollout", "halt", "standard", "--reason", "not today")
    assert halted == "rollout 1 of revision 1, canary 10% is halted: not today\n"
    assert served.refusal("rollout", "promote", "standard") == (
        "pointsman rollout: error: the rollout is halted; only a canary can be promoted\n"
    )
    assert "there is no revision before 1" in served.refusal("rollout", "back", "standard")
    assert served.refusal("rollout", "start", "standard", "--canary", "all") == (
        'pointsman rollout: error: canary: must be a share of the workers such as "10%", or a number of them '
        'such as "2"\n'
    )
