"""``by-field-filter``: models by name or attribute, as a field of the body says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import ResourceExhaustedError
from tests.support.served_models import model_of, running, selecting, write_models


def by_field(path: Path, **parameters: str) -> dict[str, Any]:
    helper = {"type": "by-field-filter", "parameters": parameters}
    return selecting(write_models(path / "m.json"), helper, "cost-scorer", weights={"cost-scorer": 1})


async def test_a_field_names_the_model(tmp_path: Path) -> None:
    async with running(by_field(tmp_path, fieldName="use")) as rig:
        assert model_of(rig.ask({"model": "x", "use": "large"})) == "large"
        assert model_of(rig.ask({"model": "x"})) == "small"
        with pytest.raises(ResourceExhaustedError):
            rig.ask({"model": "x", "use": 1})


async def test_a_field_names_an_attribute(tmp_path: Path) -> None:
    async with running(by_field(tmp_path, fieldName="want", byField="tier")) as rig:
        assert model_of(rig.ask({"model": "x", "want": "gold"})) == "medium"
        with pytest.raises(ResourceExhaustedError):
            rig.ask({"model": "x", "want": "silver"})
