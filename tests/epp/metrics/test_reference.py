"""The reference of metrics has all that a whole picker exposes, under the same labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from epp.app import Picker
from epp.options import EppOptions

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/metrics.md"

WITH_A_CONTROL_PLANE = {"pointsman_epp_control_plane_connected": ("gauge", ())}
"""Declared by pickers that hear one."""


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Our own metrics on the page: kind and labels."""
    rows = re.findall(r"^\| `(pointsman_epp_\w+)` \| (\w+) \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


@pytest.fixture
def picker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Picker:
    """A picker with everything that adds metrics; it is not started."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    endpoints = tmp_path / "endpoints.json"
    endpoints.write_text(json.dumps({"endpoints": [{"name": "a", "address": "127.0.0.1", "port": "1"}]}))
    objects = tmp_path / "objects"
    objects.mkdir()
    return Picker(
        EppOptions(
            endpoints_file=str(endpoints),
            objects_file=str(objects),
            valkey_url="redis://127.0.0.1:1",
            usage_journal=str(tmp_path / "usage"),
        )
    )


async def test_every_metric_of_our_own_is_documented_with_its_kind_and_labels(picker: Picker):
    declared = {
        each.name: (each.kind, each.labels)
        for each in picker.metrics.numbers.describe()
        if each.name.startswith("pointsman_epp_")
    }
    assert documented() == declared | WITH_A_CONTROL_PLANE
    assert picker.tracing is not None
    assert picker.usage is not None
    await picker.usage.stop()
    await picker.tracing.stop()
