"""The follower: what is in the holder, and what is said of the files."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import ConfigError
from dataplane.observability.exposition import MetricSet
from epp.objects import following
from epp.objects.documents import Scope
from epp.objects.files import ObjectFiles, Reading
from epp.objects.following import ObjectFollower
from epp.objects.keeping import MAX_LOGGED, MAX_SAID
from epp.objects.snapshot import NO_OBJECTS, ObjectHolder
from tests.epp.objects.test_files import objective
from tests.support.waiting import until

REWRITE = """---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: alias, creationTimestamp: "1970-01-01T00:01:00Z"}
spec:
  poolRef: {name: pool}
  rules: [{matches: [{model: {value: chat}}], targets: [{modelRewrite: big, weight: 1}]}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool}
spec: {selector: {matchLabels: {a: b}}, targetPorts: [{number: 8000}]}
"""


class Site:
    """A file and what follows it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.file.write_text(objective("gold", 3))
        self.holder = ObjectHolder()
        self.metrics = MetricSet()
        self.files = ObjectFiles(str(file), Scope("pool"))
        self.follower = ObjectFollower(self.files, self.holder, self.metrics, wall_clock=lambda: 7.0)

    def priority(self) -> int:
        return self.holder.current.priority_of("gold")

    async def until(self, priority: int) -> None:
        await until(lambda: self.priority() == priority)

    def exposed(self, name: str) -> dict[str, float]:
        lines = "".join(self.metrics.expose()).splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith(f"pointsman_epp_objects{name}"))
        return {key.removeprefix("pointsman_epp_objects"): float(value) for key, _, value in samples}


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A file with one objective, followed quickly once it is asked for."""
    monkeypatch.setattr(following, "POLL_S", 0.005)
    site = Site(tmp_path / "objects.yaml")
    yield site
    await site.follower.stop()


async def test_nothing_is_in_the_holder_before_the_first_reading(site: Site):
    assert site.holder.current is NO_OBJECTS
    await site.follower.load()
    assert site.priority() == 3


async def test_a_file_that_is_not_there_names_the_flag(tmp_path: Path):
    follower = ObjectFollower(ObjectFiles(str(tmp_path / "no"), Scope()), ObjectHolder(), MetricSet())
    with pytest.raises(ConfigError) as caught:
        await follower.load()
    assert str(caught.value) == f"--objects-file {tmp_path}/no: cannot be read (No such file or directory)"


async def test_changes_are_followed(site: Site):
    await site.follower.load()
    site.follower.watch()
    for priority in (4, 55):
        site.file.write_text(objective("gold", priority))
        await site.until(priority)


async def test_a_change_between_the_first_reading_and_the_watch_is_seen(site: Site):
    await site.follower.load()
    site.file.write_text(objective("gold", 4))
    site.follower.watch()
    await site.until(4)


async def test_files_written_while_they_are_read_change_nothing_until_they_are_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    whole = objective("gold", 4) + objective("silver", 5)
    read, seen = site.files.read, []

    def read_the_first_half(earlier: Reading) -> Reading:
        found = read(earlier)
        if "silver" not in site.file.read_text():
            site.file.write_text(whole)
        seen.append(len(found.objects))
        return found

    site.file.write_text(whole)
    await site.follower.load()
    site.follower.watch()
    await until(lambda: '_reloads_total{outcome="unchanged"}' in site.exposed("_reloads_total"))
    monkeypatch.setattr(site.files, "read", read_the_first_half)
    site.file.write_text(objective("gold", 4))
    await until(lambda: len(seen) >= 2)
    assert seen[:2] == [1, 2]
    assert set(site.holder.current.objectives) == {"gold", "silver"}
    assert site.exposed("_reloads_total")['_reloads_total{outcome="applied"}'] == 1


async def test_an_unchanged_set_keeps_its_snapshot(site: Site):
    await site.follower.load()
    snapshot = site.holder.current
    assert await site.follower.reload() == []
    assert site.holder.current is snapshot
    assert site.exposed("_reloads_total") == {
        '_reloads_total{outcome="applied"}': 1,
        '_reloads_total{outcome="unchanged"}': 1,
    }


async def test_mistakes_keep_what_they_concern_and_are_said_once(
    site: Site, caplog: pytest.LogCaptureFixture
):
    await site.follower.load()
    caplog.set_level(logging.INFO)
    site.file.write_text(objective("gold", "high") + objective("batch", -1))
    problems = await site.follower.reload()
    assert len(problems) == 2
    assert problems[0].endswith("spec.priority: expected int, got str")
    assert (site.priority(), site.holder.current.priority_of("batch")) == (3, -1)
    assert site.exposed("_problems") == {"_problems": 2}
    await site.follower.reload()
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == problems
    site.file.write_text(objective("gold", 9))
    assert await site.follower.reload() == []
    assert site.exposed("_problems") == {"_problems": 0}


async def test_a_file_that_goes_away_changes_nothing(site: Site, caplog: pytest.LogCaptureFixture):
    await site.follower.load()
    site.file.unlink()
    for _ in range(2):
        (problem,) = await site.follower.reload()
        assert problem == f"{site.file}: cannot be read (No such file or directory)"
    assert site.priority() == 3
    assert [r.getMessage() for r in caplog.records] == [f"the objects there are stay: {problem}"]
    assert site.exposed("_reloads_total")['_reloads_total{outcome="refused"}'] == 2
    site.file.write_text(objective("gold", 4))
    assert await site.follower.reload() == []
    assert site.priority() == 4


async def test_a_defect_while_reading_changes_nothing_and_is_no_end(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    await site.follower.load()
    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "read", lambda self, earlier: 1 / 0)
        assert await site.follower.reload() == ["internal error: division by zero"]
    assert site.priority() == 3
    assert "reading the object files failed" in caplog.text
    site.file.write_text(objective("gold", 4))
    assert await site.follower.reload() == []
    assert site.priority() == 4


async def test_what_is_in_use_is_shown_and_counted(site: Site):
    site.file.write_text(objective("gold", 3) + REWRITE + objective("x", pool="other") + objective("b", "c"))
    await site.follower.load()
    shown = site.follower.describe(10, [8000, 8001, 8001])
    place = {"file": str(site.file), "outdated": False}
    assert shown["objectives"] == [
        {"name": "gold", "priority": 3, "document": "document 1 (from line 1)", **place}
    ]
    assert shown["rewrites"] == [
        {
            "name": "alias",
            "createdAt": 60.0,
            "rules": [{"matches": ["chat"], "targets": [{"modelRewrite": "big", "weight": 1}]}],
            "document": "document 2 (from line 6)",
            **place,
        }
    ]
    assert shown["pool"] == {
        "name": "pool",
        "targetPorts": [8000],
        "appProtocol": "http",
        "failureMode": None,
        "endpointsAtOtherPorts": 2,
    }
    assert (shown["appliedAt"], shown["totalObjectives"], shown["totalRewrites"]) == (7.0, 1, 1)
    assert [len(shown[each]) for each in ("problems", "skipped", "notes")] == [1, 1, 1]
    assert site.exposed("{") == {
        '{kind="InferenceObjective"}': 1,
        '{kind="InferenceModelRewrite"}': 1,
        '{kind="InferencePool"}': 1,
    }


async def test_what_is_shown_and_logged_is_bounded(site: Site, caplog: pytest.LogCaptureFixture):
    many = "".join(objective(f"n{i}") + objective(f"b{i}", "x") for i in range(MAX_SAID + 1))
    site.file.write_text(many)
    await site.follower.load()
    shown = site.follower.describe(5)
    assert (len(shown["objectives"]), shown["totalObjectives"]) == (5, MAX_SAID + 1)
    assert len(shown["problems"]) == MAX_SAID
    assert caplog.records[-1].getMessage() == f"and {MAX_SAID + 1 - MAX_LOGGED} more like it"


async def test_stopping_does_not_wait_for_a_file_system_that_hangs(site: Site):
    await site.follower.load()
    entered, release = threading.Event(), threading.Event()

    class Hanging:
        def signature(self) -> Any:
            entered.set()
            release.wait()
            return ()

        def read(self, earlier: Reading) -> Reading:
            return earlier

    site.follower._files = Hanging()
    site.follower.watch()
    await asyncio.get_running_loop().run_in_executor(None, entered.wait)
    await site.follower.stop()
    assert not release.is_set()
    release.set()
