"""``model-name-filter``: the model that a request names."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.errors import ResourceExhaustedError
from tests.support.served_models import model_of, running, selecting, write_models


async def test_the_named_model_is_kept(tmp_path: Path) -> None:
    config = selecting(
        write_models(tmp_path / "m.json"), "model-name-filter", "cost-scorer", weights={"cost-scorer": 1}
    )
    async with running(config) as rig:
        assert rig.ask({"model": "large"}).body is None
        assert model_of(rig.ask({})) == "small"
        with pytest.raises(ResourceExhaustedError):
            rig.ask({"model": "auto"})
