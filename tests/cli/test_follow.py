"""Following: what is written, restored and reported, with both ends played by the test."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cli.follow import Follower
from cli.follow_ends import Counts, Problem, Running, UnreachableError, Wanted


def wanted(content: str, revision: int = 1, *, is_guarded: bool = False) -> Wanted:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Wanted(f'"d/{revision}"', "d", revision, digest, content, is_guarded)


class Control:
    """Wants what it is told to, and keeps what it hears."""

    def __init__(self) -> None:
        self.want: Wanted | None = None
        self.is_there = True
        self.acks: list[tuple[int, list[Problem]]] = []
        self.observed: list[Counts] = []

    def check(self) -> None:
        if not self.is_there:
            raise UnreachableError("the control plane is away")

    def wanted(self, etag: str) -> Wanted | None:
        self.check()
        return None if self.want is None or self.want.etag == etag else self.want

    def acknowledge(self, what: Wanted, problems: list[Problem]) -> None:
        self.check()
        self.acks.append((what.revision, problems))

    def observe(self, what: Wanted, counts: Counts) -> None:
        self.check()
        self.observed.append(counts)


class Picker:
    """Runs the text of its file unless that says "bad"."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.reads = file
        self.is_there = True
        self.total = Counts(0, 0)
        self.text = file.read_bytes() if file.exists() else b"default"

    def reload(self) -> Running:
        self.running()
        text = self.reads.read_bytes()
        if b"bad" in text:
            return Running(self.running().revision, ["plugins[0].type: is unknown", "no path: here"])
        self.text = text
        return self.running()

    def running(self) -> Running:
        if not self.is_there:
            raise UnreachableError("the picker is away")
        return Running(hashlib.sha256(self.text).hexdigest()[:12], [])

    def counts(self) -> Counts:
        return self.total


class Site:
    """A follower with both its ends."""

    def __init__(self, folder: Path, text: str | None = "first") -> None:
        self.file = folder / "picker.yaml"
        self.good = folder / "picker.yaml.last-good"
        if text is not None:
            self.file.write_text(text)
        self.control = Control()
        self.picker = Picker(self.file)
        self.said: list[str] = []
        self.now = 100.0
        self.follower = self.start()

    def start(self) -> Follower:
        return Follower(self.control, self.picker, self.file, self.said.append, clock=lambda: self.now)

    def want(self, content: str, revision: int = 1, *, is_guarded: bool = False) -> None:
        self.control.want = wanted(content, revision, is_guarded=is_guarded)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


REFUSAL = [Problem("plugins[0].type", "is unknown"), Problem("", "no path: here")]


def test_a_revision_is_written_applied_and_reported_once(site: Site) -> None:
    site.want("second")
    site.follower.once()
    assert (site.picker.text, site.good.read_text(), site.control.acks) == (b"second", "second", [(1, [])])
    assert site.follower.is_settled
    site.follower.once()
    assert site.control.acks == [(1, [])]


def test_nothing_published_leaves_the_file_alone(site: Site) -> None:
    site.follower.once()
    assert (site.file.read_text(), site.good.exists(), site.follower.is_settled) == ("first", False, False)


def test_a_refused_revision_is_reported_and_does_not_stay_in_the_file(site: Site) -> None:
    site.want("bad")
    site.follower.once()
    assert site.control.acks == [(1, REFUSAL)]
    assert (site.file.read_text(), site.picker.text) == ("first", b"first")
    site.want("second", 2)
    site.follower.once()
    assert site.control.acks[1:] == [(2, [])]
    site.want("bad again", 3)
    site.follower.once()
    assert (site.file.read_text(), site.picker.text) == ("second", b"second")


def test_a_refused_text_where_there_was_no_file_goes_away_again(tmp_path: Path) -> None:
    site = Site(tmp_path, text=None)
    site.want("bad")
    site.follower.once()
    assert (site.file.exists(), site.control.acks) == (False, [(1, REFUSAL)])


def test_a_follower_that_died_with_a_refused_text_in_the_file_restores_the_last_good_one(site: Site) -> None:
    site.want("second")
    site.follower.once()
    site.file.write_text("bad")
    site.want("bad", 2)
    site.follower = site.start()
    site.follower.once()
    assert (site.file.read_text(), site.control.acks[-1]) == ("second", (2, REFUSAL))


def test_a_picker_that_is_away_keeps_its_file_and_gets_the_revision_later(site: Site) -> None:
    site.picker.is_there = False
    site.want("second")
    for _ in range(2):
        with pytest.raises(UnreachableError, match="the picker is away"):
            site.follower.once()
    assert (site.file.read_text(), site.control.acks) == ("first", [])
    site.picker.is_there = True
    site.follower.once()
    assert (site.picker.text, site.control.acks) == (b"second", [(1, [])])


def test_a_picker_that_waits_for_its_file_gets_the_newest(tmp_path: Path) -> None:
    site = Site(tmp_path, text=None)
    site.picker.is_there = False
    for revision, text in enumerate(("bad", "second"), 1):
        site.want(text, revision)
        with pytest.raises(UnreachableError):
            site.follower.once()
        assert site.file.read_text() == text
    site.picker.is_there = True
    site.follower.once()
    assert site.control.acks == [(2, [])]


def test_a_control_plane_that_is_away_changes_nothing_and_hears_of_it_later(site: Site) -> None:
    site.want("second")
    site.control.acknowledge = None  # type: ignore[assignment]  # it goes away between the two
    with pytest.raises(TypeError):
        site.follower.once()
    del site.control.acknowledge
    site.control.is_there = False
    with pytest.raises(UnreachableError, match="the control plane is away"):
        site.follower.once()
    assert site.picker.text == b"second"
    site.control.is_there = True
    site.follower.once()
    assert site.control.acks == [(1, [])]


def test_a_damaged_answer_is_not_written(site: Site) -> None:
    site.control.want = wanted("second")._replace(content="secund")
    with pytest.raises(UnreachableError, match="its digest is another one"):
        site.follower.once()
    assert site.file.read_text() == "first"


def test_a_picker_that_reads_another_file_refuses(site: Site, tmp_path: Path) -> None:
    site.picker.reads = tmp_path / "other"
    site.picker.reads.write_text("other")
    site.want("second")
    site.follower.once()
    ((_, (problem,)),) = site.control.acks
    assert problem.message.endswith(f"; start it with --config-file {site.file}")
    assert site.file.read_text() == "first"


def test_requests_and_errors_are_told_from_the_revisions_start_while_it_is_guarded(site: Site) -> None:
    site.picker.total = Counts(100, 9)
    site.want("second", is_guarded=True)
    site.follower.once()
    site.picker.total = Counts(110, 10)
    site.now += 5
    site.follower.once()
    site.follower.once()
    site.picker.total = Counts(3, 5)  # restarted; requests without an endpoint are errors alone
    site.now += 5
    site.follower.once()
    assert site.control.observed == [Counts(0, 0), Counts(10, 1), Counts(5, 5)]
    site.control.want = wanted("second")._replace(etag="unguarded")
    site.now += 5
    site.follower.once()
    assert len(site.control.observed) == 3
