"""``request-metadata-extractor``: what is under way, from sending to the exchange's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.errors import ResourceExhaustedError
from dataplane.extproc.exchange import Ending
from dataplane.plugin.heir import bequeath
from ipp.handler import ProcessorHandler
from tests.support.processors import Rig
from tests.support.served_models import running, selecting, write_models

TYPE = "request-metadata-extractor"


def under_way(rig: Rig) -> list[dict[str, object]]:
    shown = rig.pipeline.instances[TYPE].dump_state()
    return list(shown["models"])


async def test_requests_and_tokens_are_counted_by_model(tmp_path: Path) -> None:
    config = selecting(write_models(tmp_path / "m.json"), "model-group-name-filter", extractors=[TYPE])
    async with running(config) as rig:
        rig.ask({"model": "large", "max_tokens": 100})
        first = rig.exchange
        rig.ask({"model": "auto/wise", "max_completion_tokens": 5, "max_tokens": 100})
        assert under_way(rig) == [{"model": "large", "requests": 2, "tokens": 105}]
        first.on_end(Ending.DISCONNECT)
        assert under_way(rig) == [{"model": "large", "requests": 1, "tokens": 5}]
        rig.exchange.on_end(Ending.NATURAL)
        assert under_way(rig) == []


async def test_odd_limits_count_as_none(tmp_path: Path) -> None:
    async with running(selecting(write_models(tmp_path / "m.json"), extractors=[TYPE])) as rig:
        for limit in (True, "9", -4, None, 1.5):
            rig.ask({"model": "small", "max_tokens": limit})
        assert sum(int(str(each["tokens"])) for each in under_way(rig)) == 0


async def test_what_is_refused_never_counts(tmp_path: Path) -> None:
    config = selecting(write_models(tmp_path / "m.json"), "model-name-filter", extractors=[TYPE])
    async with running(config) as rig:
        with pytest.raises(ResourceExhaustedError):
            rig.ask({"model": "nobody"})
        rig.exchange.on_end(Ending.REJECTED)
        assert under_way(rig) == []


async def test_counts_go_on_over_a_change_of_configuration(tmp_path: Path) -> None:
    config = selecting(write_models(tmp_path / "m.json"), "model-name-filter", extractors=[TYPE])
    async with running(config) as old, running(config) as new:
        old.ask({"model": "small"})
        bequeath(old.pipeline.instances, new.pipeline.instances)
        assert under_way(new) == [{"model": "small", "requests": 1, "tokens": 0}]
        new.handler = ProcessorHandler(new.pipeline, new.metrics)
        new.ask({"model": "small"})
        old.exchange.on_end(Ending.NATURAL)
        assert under_way(new) == [{"model": "small", "requests": 1, "tokens": 0}]
