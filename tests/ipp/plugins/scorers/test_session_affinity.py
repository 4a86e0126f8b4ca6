"""``session-affinity``: sessions stay on their model; ids are minted and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.plugin.heir import bequeath
from tests.support.processors import Rig, headers_of, pipeline_of
from tests.support.served_models import model_of, running, selecting, write_models

TYPE = "session-affinity"
TENANT = "x-llm-d-inference-fairness-id"


def sticky(path: Path, **parameters: Any) -> dict[str, Any]:
    """Sessions weigh more than the price; ``auto/...`` narrows."""
    helper = {"type": TYPE, "parameters": parameters}
    return selecting(
        write_models(path / "m.json"),
        "model-group-name-filter",
        helper,
        "cost-scorer",
        weights={TYPE: 10, "cost-scorer": 1},
        response=[TYPE],
    )


def begin(rig: Rig, session: str, group: str = "auto/wise", *headers: tuple[str, str]) -> None:
    rig.ask({"model": group}, ("x-session-id", session), *headers)
    assert headers_of(rig.answer()) == {"x-session-id": session}


async def test_a_session_stays_where_it_began(tmp_path: Path) -> None:
    async with running(sticky(tmp_path)) as rig:
        begin(rig, "s1")
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "s1"))) == "large"
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "s2"))) == "small"
        assert model_of(rig.ask({"model": "auto/fast"}, ("x-session-id", "s1"))) == "small"
        assert rig.counted("ipp_session_affinity_cache_hits_total") == 2
        assert rig.counted("ipp_session_affinity_cache_misses_total") == 1
        assert rig.counted("ipp_session_affinity_cache_size") == 1


@pytest.mark.parametrize("sent", ["", "x" * 257, "two words"])
async def test_an_id_is_minted_and_told(tmp_path: Path, sent: str) -> None:
    async with running(sticky(tmp_path)) as rig:
        rig.ask({"model": "auto/wise"}, *([("x-session-id", sent)] if sent else []))
        minted = headers_of(rig.answer())["x-session-id"]
        assert str(UUID(minted)) == minted
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", minted))) == "large"


async def test_sessions_of_tenants_are_apart(tmp_path: Path) -> None:
    async with running(sticky(tmp_path)) as rig:
        begin(rig, "s", "auto/wise", (TENANT, "a"))
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "s"), (TENANT, "b"))) == "small"
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "s"), (TENANT, "a"))) == "large"


async def test_a_model_that_failed_does_not_keep_the_session(tmp_path: Path) -> None:
    async with running(sticky(tmp_path)) as rig:
        rig.ask({"model": "auto/wise"}, ("x-session-id", "s"))
        rig.answer(status=503)
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "s"))) == "small"


async def test_sessions_end_by_age_and_by_number(tmp_path: Path) -> None:
    async with running(sticky(tmp_path, maxSessions=2, ttlSeconds=60)) as rig:
        begin(rig, "a")
        rig.clock.advance(30)
        begin(rig, "b")
        rig.clock.advance(31)
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "a"))) == "small"
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "b"))) == "large"
        begin(rig, "c")
        begin(rig, "d")
        assert model_of(rig.ask({"model": "auto"}, ("x-session-id", "b"))) == "small"
        assert rig.counted("ipp_session_affinity_cache_evictions_total") == 2
        assert rig.counted("ipp_session_affinity_cache_size") == 2


async def test_sessions_go_on_over_a_change_of_configuration(tmp_path: Path) -> None:
    async with running(sticky(tmp_path)) as old, running(sticky(tmp_path, ttlSeconds=50)) as new:
        begin(old, "s")
        bequeath(old.pipeline.instances, new.pipeline.instances)
        await old.pipeline.close()
        assert old.counted("ipp_session_affinity_cache_size") == 0
        assert model_of(new.ask({"model": "auto"}, ("x-session-id", "s"))) == "large"
        assert new.counted("ipp_session_affinity_cache_size") == 1


def test_it_has_to_see_answers(tmp_path: Path) -> None:
    config = sticky(tmp_path)
    config["profiles"][0]["plugins"]["response"] = []
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config)
    assert [str(error) for error in caught.value.errors] == [
        (
            "profiles[0].plugins.request[2].pluginRef: plugin 'session-affinity' learns from answers; "
            "list it under response as well"
        )
    ]
