"""The reloader: a changed text runs completely or not at all, and what went wrong is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dataplane.config.given import Given
from dataplane.config.problems import ConfigErrors
from dataplane.config.reload import Reloader, revision_of
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.observability.exposition import MetricSet
from tests.support.waiting import until

PREFIX = "pointsman_epp_config_"


class Source:
    """A text, and a target that refuses texts beginning with "bad"."""

    def __init__(self, text: bytes = b"one") -> None:
        self.text = text
        self.running = text
        self.applied: list[bytes] = []
        self.metrics = MetricSet()
        self.reloader = Reloader(
            lambda: self.text,
            self.apply,
            revision_of(text),
            self.metrics,
            prefix=PREFIX,
            wall_clock=lambda: 7.0,
        )

    async def apply(self, text: bytes, revision: str) -> None:
        assert revision == revision_of(text)
        if text.startswith(b"bad"):
            raise ConfigErrors([ConfigError("wrong", path="a"), ConfigError("worse", path="b")])
        if text.startswith(b"defect"):
            raise RuntimeError("boom")
        self.running = text
        self.applied.append(text)

    def counted(self, outcome: str) -> float:
        lines = "".join(self.metrics.expose()).splitlines()
        key = f'pointsman_epp_config_reloads_total{{outcome="{outcome}"}} '
        return sum(float(line.removeprefix(key)) for line in lines if line.startswith(key))


async def test_a_new_text_is_applied_once() -> None:
    source = Source()
    assert await source.reloader.reload() == []
    source.text = b"two"
    assert await source.reloader.reload() == []
    assert await source.reloader.reload() == []
    assert source.applied == [b"two"]
    assert source.reloader.describe() == {
        "revision": revision_of(b"two"),
        "appliedAt": 7.0,
        "refused": [],
        "refusedRevision": "",
    }
    assert (source.counted("applied"), source.counted("unchanged")) == (1, 2)


@pytest.mark.parametrize(
    ("text", "outcome", "problems"),
    [
        (b"bad", "refused", ["a: wrong", "b: worse"]),
        (b"defect", "failed", ["internal error: boom"]),
    ],
)
async def test_a_text_that_cannot_run_changes_nothing_and_is_told(
    text: bytes, outcome: str, problems: list[str]
) -> None:
    source = Source()
    source.text = text
    assert await source.reloader.reload() == problems
    assert source.running == b"one"
    assert source.reloader.describe()["refused"] == problems
    assert source.reloader.describe()["refusedRevision"] == source.reloader.refused_revision
    assert source.reloader.revision == revision_of(b"one")
    assert source.counted(outcome) == 1
    assert "pointsman_epp_config_last_reload_successful 0" in "".join(source.metrics.expose())
    source.text = b"one"
    assert await source.reloader.reload() == []
    assert "pointsman_epp_config_last_reload_successful 1" in "".join(source.metrics.expose())


@pytest.mark.parametrize("text", [b"", b" \n\n"])
async def test_a_file_that_becomes_empty_changes_nothing(text: bytes) -> None:
    source = Source()
    source.text = text
    (problem,) = await source.reloader.reload()
    assert problem.startswith("the file of the configuration has become empty; start ")
    assert (source.running, source.reloader.revision) == (b"one", revision_of(b"one"))
    assert source.counted("refused") == 1


async def test_a_picker_that_started_with_an_empty_file_goes_on() -> None:
    source = Source(b"")
    assert await source.reloader.reload() == []
    assert source.counted("unchanged") == 1


async def test_a_file_that_cannot_be_read_is_told() -> None:
    source = Source()

    def unreadable() -> bytes:
        raise ConfigError("cannot be read (gone)", path="--config-file f")

    reloader = Reloader(unreadable, source.apply, "r", MetricSet(), prefix=PREFIX)
    assert await reloader.reload() == ["--config-file f: cannot be read (gone)"]


async def test_reloads_run_one_after_the_other() -> None:
    running, most = 0, 0

    async def apply(text: bytes, revision: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    texts = iter([b"1", b"2", b"3"])
    reloader = Reloader(lambda: next(texts), apply, "r", MetricSet(), prefix=PREFIX)
    await asyncio.gather(*(reloader.reload() for _ in range(3)))
    assert (most, reloader.revision) == (1, revision_of(b"3"))


@pytest.mark.parametrize("how", ["write", "rename", "symlink"])
async def test_a_changed_file_is_followed(tmp_path: Path, how: str) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "config").write_bytes(b"one")
    (tmp_path / "data").symlink_to(tmp_path / "v1")
    file = tmp_path / "data" / "config" if how == "symlink" else tmp_path / "v1" / "config"
    source = Source()
    source.reloader = Reloader(file.read_bytes, source.apply, revision_of(b"one"), MetricSet(), prefix=PREFIX)
    source.reloader.watch(str(file), FileSignature.of(str(file)))
    await asyncio.sleep(0)
    if how == "write":
        file.write_bytes(b"two")
    elif how == "rename":
        (tmp_path / "new").write_bytes(b"two")
        (tmp_path / "new").rename(file)
    else:
        (tmp_path / "v2").mkdir()
        (tmp_path / "v2" / "config").write_bytes(b"two")
        (tmp_path / "next").symlink_to(tmp_path / "v2")
        (tmp_path / "next").rename(tmp_path / "data")
    try:
        await until(lambda: source.running == b"two")
    finally:
        await source.reloader.stop()
    assert source.applied == [b"two"]


async def test_a_file_changed_before_the_watch_began_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"one")
    before = FileSignature.of(str(file))
    source = Source()
    source.reloader = Reloader(file.read_bytes, source.apply, revision_of(b"one"), MetricSet(), prefix=PREFIX)
    file.write_bytes(b"later")
    source.reloader.watch(str(file), before)
    try:
        await until(lambda: source.applied)
    finally:
        await source.reloader.stop()
    assert source.applied == [b"later"]


async def test_a_stopped_reloader_applies_nothing() -> None:
    source = Source()
    await source.reloader.stop()
    source.text = b"two"
    assert await source.reloader.reload() == ["the process is stopping"]
    assert source.applied == []


def test_the_reference_page_lists_the_metrics() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text()
    described = {metric.name for metric in Source().metrics.describe()}
    assert {name for name in described if f"| `{name}` |" in page} == described
    assert len(described) == 3


async def test_a_file_written_while_it_is_read_is_read_again_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"one")
    before = FileSignature.of(str(file))
    file.write_bytes(b"two: [a")

    def read() -> bytes:
        text = file.read_bytes()
        if text == b"two: [a":
            file.write_bytes(b"two: [a, b]")
        return text

    source = Source()
    source.reloader = Reloader(read, source.apply, revision_of(b"one"), MetricSet(), prefix=PREFIX)
    source.reloader.watch(str(file), before)
    try:
        await until(lambda: source.applied)
    finally:
        await source.reloader.stop()
    assert source.applied == [b"two: [a, b]"]


async def test_what_a_control_plane_gives_stands_in_the_place_of_the_file_until_it_gives_nothing() -> None:
    source = Source()
    labels: list[str] = []
    taken: list[str] = []

    async def apply(text: bytes, revision: str) -> None:
        taken.append(revision)
        if text.startswith(b"bad"):
            raise ConfigErrors([ConfigError("wrong", path="a"), ConfigError("worse", path="b")])

    reloader = Reloader(
        lambda: source.text,
        apply,
        revision_of(b"one"),
        MetricSet(),
        prefix=PREFIX,
        relabel=labels.append,
    )
    assert list(await reloader.take(Given(b"two", "chat/1@x"))) == []
    source.text = b"three"
    assert (await reloader.reload(), reloader.revision) == ([], "chat/1@x")
    refused = await reloader.take(Given(b"bad", "chat/2@y"))
    assert [(error.path, error.message) for error in refused] == [("a", "wrong"), ("b", "worse")]
    assert (reloader.revision, reloader.refused_revision) == ("chat/1@x", "chat/2@y")
    assert (await reloader.reload(), reloader.problems) == ([], [])
    assert list(await reloader.take(Given(b"two", "chat/3@x"))) == []
    assert (reloader.revision, labels, taken) == ("chat/3@x", ["chat/3@x"], ["chat/1@x", "chat/2@y"])
    assert list(await reloader.take(None)) == []
    assert (reloader.revision, taken[2:]) == (revision_of(b"three"), [revision_of(b"three")])
