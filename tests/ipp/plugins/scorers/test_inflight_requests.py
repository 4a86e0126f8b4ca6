"""``inflight-requests-scorer``: fewer requests under way are better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.base import PluginParams, TypedName
from ipp.interfaces.models import ModelData, ModelLoads, ServedModel
from ipp.plugins.scorers.inflight_requests import InflightRequestsScorer
from tests.support.processors import pipeline_of
from tests.support.served_models import selecting

ANY: Any = None


class OnlyData:
    """As much of a handle as the scorer looks at."""

    def __init__(self) -> None:
        self.data = ModelData()


def test_scores_lie_between_the_most_and_the_fewest() -> None:
    handle: Any = OnlyData()
    scorer = InflightRequestsScorer(TypedName("s", "s"), PluginParams(), handle)
    models = [ServedModel("a"), ServedModel("b"), ServedModel("c")]
    assert scorer.score_models(ANY, models) == [1.0, 1.0, 1.0]
    loads = handle.data.table(ModelLoads)
    for model, count in (("a", 4), ("b", 1)):
        for _ in range(count):
            assert loads.begin(model, 0)
    assert scorer.score_models(ANY, models) == [0.0, 0.75, 1.0]


def test_somebody_has_to_count(tmp_path: Path) -> None:
    config = selecting(
        tmp_path / "m.json", "inflight-requests-scorer", weights={"inflight-requests-scorer": 1}
    )
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config)
    assert [str(error) for error in caught.value.errors] == [
        (
            "plugins[1]: 'inflight-requests-scorer' needs the requests in flight of each model, which "
            "nothing in datalayer provides; list a request-metadata-extractor there"
        )
    ]
