"""``model-group-name-filter``: ``auto``, groups and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import ResourceExhaustedError
from tests.support.served_models import model_of, running, selecting, write_models

HELPERS = ("model-group-name-filter", "cost-scorer")


@pytest.mark.parametrize(
    ("model", "chosen"),
    [("", "small"), (None, "small"), ("auto", "small"), ("auto/wise", "large"), (" auto/fast ", "small")],
)
async def test_candidates_by_name(tmp_path: Path, model: Any, chosen: str) -> None:
    config = selecting(write_models(tmp_path / "m.json"), *HELPERS, weights={"cost-scorer": 1})
    async with running(config) as rig:
        assert model_of(rig.ask({"model": model})) == chosen


@pytest.mark.parametrize("model", ["automatic", 7, ["auto"], "auto/slow"])
async def test_everything_else_has_no_candidates(tmp_path: Path, model: Any) -> None:
    config = selecting(write_models(tmp_path / "m.json"), *HELPERS, weights={"cost-scorer": 1})
    async with running(config) as rig:
        with pytest.raises(ResourceExhaustedError):
            rig.ask({"model": model})
