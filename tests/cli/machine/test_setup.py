"""The database is set up by a process, once and again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cli.machine.database import set_up
from cli.machine.layout import Layout
from dataplane.processes.child import StartError

pytestmark = pytest.mark.integration


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "logs").mkdir()
    return Layout(
        state=tmp_path,
        web_port=1,
        xds_port=2,
        xds_metrics_port=4,
        valkey_port=3,
        valkey_password="secret",
        is_alone=True,
    )


async def test_the_first_time_makes_an_administrator_with_a_password_and_later_ones_keep_the_token(
    layout: Layout,
):
    first = await set_up(layout, "")
    assert (first.administrator, len(first.password or "")) == ("admin", 20)
    assert first.token.startswith("pmt_")
    assert layout.seeds.exists()
    layout.seeds.unlink()
    second = await set_up(layout, first.token)
    assert (second.administrator, second.password, second.token) == ("admin", None, first.token)
    assert not layout.seeds.exists()
    third = await set_up(layout, "pmt_lost")
    assert third.token.startswith("pmt_")
    assert third.token != first.token
    assert (await set_up(layout, first.token)).token not in {first.token, third.token}


async def test_a_database_that_cannot_be_had_fails_the_start_with_the_end_of_the_log(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{layout.state}/nowhere/database.sqlite3")
    with pytest.raises(StartError, match=r"(?s)the database cannot be set up; the end of .*unable to open"):
        await set_up(replace(layout, is_alone=False), "")
