"""The configuration file of a pool: it holds what runs, whatever happens while something new is tried."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.fleet.local.configuration import DEFAULT, ENDED, ConfigFile
from epp.reload import revision_of


def revision(text: str) -> str:
    return revision_of(text.encode())


def started(folder: Path) -> ConfigFile:
    config = ConfigFile(folder)
    config.prepare(None)
    return config


def test_a_first_start_begins_with_the_default(tmp_path: Path) -> None:
    config = started(tmp_path)
    assert (config.path.read_text(), config.verdict(DEFAULT), config.verdict("new")) == (DEFAULT, [], None)


def test_a_text_that_runs_is_what_the_next_start_begins_with(tmp_path: Path) -> None:
    config = started(tmp_path)
    config.offer("new", 7)
    assert (config.path.read_text(), config.verdict("new"), config.is_trying) == ("new", None, True)
    config.judge(revision(DEFAULT), "", [])
    assert config.verdict("new") is None
    config.judge(revision("new"), "", [])
    assert (config.verdict("new"), config.is_trying) == ([], False)
    again = started(tmp_path)
    assert (again.path.read_text(), again.verdict("new")) == ("new", [])


def test_a_refused_text_is_taken_back_and_not_tried_again(tmp_path: Path) -> None:
    config = started(tmp_path)
    config.offer("bad", 7)
    config.judge(revision(DEFAULT), revision("other"), ["an older refusal"])
    assert config.verdict("bad") is None
    config.judge(revision(DEFAULT), revision("bad"), ["plugins: wrong"])
    assert (config.path.read_text(), config.verdict("bad")) == (DEFAULT, ["plugins: wrong"])
    config.offer("bad", 7)
    assert not config.is_trying
    assert started(tmp_path).path.read_text() == DEFAULT


def test_a_text_that_ends_the_picker_is_refused(tmp_path: Path) -> None:
    config = started(tmp_path)
    config.offer("bad", 7)
    config.prepare(7)
    assert config.path.read_text() == "bad"
    config.prepare(8)
    assert (config.path.read_text(), config.verdict("bad")) == (DEFAULT, [ENDED])


TEXTS = st.sampled_from(["", "a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("offer"), TEXTS),
    st.tuples(st.just("runs"), TEXTS),
    st.tuples(st.just("refuses"), TEXTS),
    st.tuples(st.just("dies"), st.just("")),
    st.tuples(st.just("restart"), st.just("")),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=12))
def test_no_start_ever_finds_a_text_that_has_not_run(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    config, pid, ran = started(tmp_path), 1, {DEFAULT}
    for what, text in steps:
        tried = config.path.read_text() if config.is_trying else None
        if what == "offer":
            config.offer(text, pid)
        elif what == "runs":
            config.judge(revision(text), "", [])
            if text == tried:
                ran.add(text)
        elif what == "refuses":
            config.judge(revision(DEFAULT), revision(text), ["no"])
        elif what == "dies":
            pid += 1
            config.prepare(None)
            assert config.path.read_text() in ran
        else:
            config = started(tmp_path)
            assert config.path.read_text() in ran
        assert config.is_trying or config.path.read_text() in ran
