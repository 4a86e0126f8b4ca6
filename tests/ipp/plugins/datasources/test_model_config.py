"""``model-config-datasource``: the models of a file, followed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError, ResourceExhaustedError
from ipp.model_file import read_models
from ipp.plugins.datasources import model_config
from tests.support.processors import Rig
from tests.support.served_models import running, selecting, write_models
from tests.support.waiting import PATIENCE_S

TYPE = "model-config-datasource"


async def known(rig: Rig, *names: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while rig.pipeline.instances[TYPE].dump_state()["models"] != list(names):  # noqa: ASYNC110 - a file's change has no event
            await asyncio.sleep(0.01)


async def test_a_changed_file_is_taken_and_vanished_models_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_config, "POLL_S", 0.01)
    path = write_models(tmp_path / "m.json")
    async with running(selecting(path, "model-name-filter")) as rig:
        await known(rig, "small", "medium", "large")
        assert rig.ask({"model": "large"}).body is None
        write_models(tmp_path / "new.json", [{"name": "other"}], []).replace(path)
        await known(rig, "other")
        with pytest.raises(ResourceExhaustedError):
            rig.ask({"model": "large"})


async def test_a_mistake_keeps_what_was_there(tmp_path: Path) -> None:
    path = write_models(tmp_path / "m.json", [{"name": "a"}], [])
    async with running(selecting(path)) as rig:
        source = rig.pipeline.instances[TYPE]
        path.write_text('{"models": [{"nam": "b"}]}')
        assert await source.read_source() == [
            f'{path}.models[0].nam: unknown field (did you mean "name"?)',
            f"{path}.models[0].name: is required",
        ]
        path.unlink()
        assert await source.read_source() == [f"{path}: cannot be read (No such file or directory)"]
        assert source.dump_state()["models"] == ["a"]


async def test_a_file_that_is_missing_at_the_start_refuses_the_configuration(tmp_path: Path) -> None:
    rig = Rig(selecting(tmp_path / "none.json"))
    with pytest.raises((ConfigError, ConfigErrors), match="cannot be read"):
        await rig.pipeline.start()


def test_every_mistake_has_its_path() -> None:
    problems: list[ConfigError] = []
    text = b"""{"models": [{"name": "a", "pricing": {"input_per_million": -1}},
     {"name": "a", "metricsURL": "x"}],
     "groups": [{"name": "g", "models": ["a", "b"]}, {"name": "g", "models": ["a"]}]}"""
    read_models(text, problems)
    assert [str(problem) for problem in problems] == [
        "models[0].pricing.input_per_million: must be a finite number of at least 0, is -1.0",
        "models[1].name: 'a' is listed twice",
        "models[1].metricsURL: is no URL; write http://HOST:PORT/metrics",
        "groups[0].models[1]: there is no model 'b' in the list",
        "groups[1].name: 'g' is the name of another group",
    ]
