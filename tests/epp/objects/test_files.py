"""Files of documents: what counts, what stays although its document is broken, and what goes."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from epp.objects import files as files_module
from epp.objects.documents import Scope
from epp.objects.files import ObjectFiles, Reading

HEAD = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\n"


def objective(name: str, priority: object = 1, pool: str = "pool") -> str:
    """A document."""
    return (
        f"---\n{HEAD}metadata: {{name: {name}}}\nspec: {{poolRef: {{name: {pool}}}, priority: {priority}}}\n"
    )


class Folder:
    """Files, and the readings that follow one another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reading = Reading()
        self.files = ObjectFiles(str(path), Scope("pool"))

    def write(self, **texts: str | None) -> None:
        for name, text in texts.items():
            file = self.path / f"{name}.yaml"
            file.unlink() if text is None else file.write_text(text)

    def read(self) -> dict[str, int]:
        self.reading = self.files.read(self.reading)
        return {each.name: each.priority for each in self.reading.objectives()}

    def problems(self) -> list[str]:
        return [problem.removeprefix(f"{self.path}/") for problem in self.reading.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    return Folder(tmp_path)


def test_all_documents_of_all_yaml_and_json_files_count_in_order(folder: Folder):
    folder.write(b=objective("three", 3), a=objective("one", 1) + objective("two", 2))
    document = {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": "four"},
        "spec": {"poolRef": {"name": "pool"}, "priority": 4},
    }
    (folder.path / "c.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [document]}))
    (folder.path / ".hidden.yaml").write_text(objective("five"))
    (folder.path / "notes.txt").write_text("not yaml: [")
    assert list(folder.read().items()) == [("one", 1), ("two", 2), ("three", 3), ("four", 4)]
    assert folder.reading.problems == ()
    assert [(kept.file, kept.place) for kept in folder.reading.objects.values()] == [
        (f"{folder.path}/a.yaml", "document 1 (from line 1)"),
        (f"{folder.path}/a.yaml", "document 2 (from line 6)"),
        (f"{folder.path}/b.yaml", "document 1 (from line 1)"),
        (f"{folder.path}/c.json", "document 1 (from line 1): items[0]"),
    ]


def test_a_bad_document_is_left_out_and_said_and_the_rest_counts(folder: Folder):
    folder.write(a=objective("one") + objective("bad", "high") + "---\nkind: [\n" + objective("two"))
    assert folder.read() == {"one": 1, "two": 1}
    wrong, broken = folder.problems()
    assert wrong == "a.yaml: document 2 (from line 6): spec.priority: expected int, got str"
    assert broken.startswith("a.yaml: document 3 (from line 11): line 2, column 8: ")


def test_documents_for_other_pools_are_skipped_and_that_is_no_problem(folder: Folder):
    folder.write(a=objective("one") + objective("two", pool="other"))
    assert folder.read() == {"one": 1}
    assert folder.reading.problems == ()
    (skipped,) = folder.reading.skipped
    assert skipped == (
        f"{folder.path}/a.yaml: document 2 (from line 6): InferenceObjective two is not for this pool: "
        "its poolRef names other, this pool is pool (--pool-name)"
    )


def test_of_one_name_the_first_counts(folder: Folder):
    folder.write(a=objective("one", 1) + objective("one", 2), b=objective("one", 3))
    assert folder.read() == {"one": 1}
    first = (
        f"InferenceObjective one is left out, it is in {folder.path}/a.yaml: document 1 (from line 1) already"
    )
    assert folder.problems() == [
        f"a.yaml: document 2 (from line 6): {first}",
        f"b.yaml: document 1 (from line 1): {first}",
    ]


def test_the_version_before_stays_while_its_document_is_wrong(folder: Folder):
    folder.write(a=objective("one", 1) + objective("two", 2))
    folder.read()
    folder.write(a=objective("one", "high") + objective("two", 5))
    assert folder.read() == {"two": 5, "one": 1}
    assert folder.problems()[1] == (
        "a.yaml: InferenceObjective one stays as it was: its document cannot be used"
    )
    assert folder.read() == {"two": 5, "one": 1}
    assert [kept.outdated for kept in folder.reading.objects.values()] == [False, True]
    folder.write(a=objective("one", 7) + objective("two", 5))
    assert folder.read() == {"one": 7, "two": 5}
    assert folder.problems() == []


def test_a_wrong_document_whose_name_is_known_costs_nothing_else_its_removal(folder: Folder):
    folder.write(a=objective("one") + objective("two"))
    folder.read()
    folder.write(a=objective("one", "high"))
    assert folder.read() == {"one": 1}


def test_everything_from_a_file_stays_while_a_document_in_it_cannot_be_read(folder: Folder):
    folder.write(a=objective("one", 1) + objective("two", 2), b=objective("three", 3))
    folder.read()
    folder.write(a=objective("one", 5) + "---\n{", b=objective("four", 4))
    assert folder.read() == {"one": 5, "four": 4, "two": 2}
    assert folder.problems()[-1] == (
        "a.yaml: InferenceObjective two stays as it was: the file cannot be read to its end"
    )


@pytest.mark.parametrize("content", [b"\xff", b"#" * (1 << 20) + b"x"])
def test_everything_from_a_file_stays_while_it_cannot_be_read(folder: Folder, content: bytes):
    folder.write(a=objective("one"), b=objective("two"))
    folder.read()
    (folder.path / "a.yaml").write_bytes(content)
    assert folder.read() == {"two": 1, "one": 1}
    assert len(folder.problems()) == 2


def test_what_is_taken_out_goes(folder: Folder):
    folder.write(a=objective("one") + objective("two"), b=objective("three"))
    folder.read()
    folder.write(a=objective("two"), b=None)
    assert folder.read() == {"two": 1}
    assert folder.problems() == []


def test_an_object_may_move_to_another_file(folder: Folder):
    folder.write(a=objective("one", 1), b="# empty")
    folder.read()
    folder.write(a="# empty", b=objective("one", 2))
    assert folder.read() == {"one": 2}


def test_the_file_itself_must_be_readable(tmp_path: Path):
    absent = tmp_path / "no.yaml"
    with pytest.raises(ConfigError, match=r"no\.yaml: cannot be read \(No such file or directory\)"):
        ObjectFiles(str(absent), Scope("pool")).read(Reading())


def test_numbers_of_files_and_objects_have_caps(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files_module, "MAX_FILES", 2)
    monkeypatch.setattr(files_module, "MAX_OBJECTS", 3)
    folder.write(a="".join(objective(f"a{i}") for i in range(5)), b=objective("b"), c=objective("c"))
    assert list(folder.read()) == ["a0", "a1", "a2"]
    assert folder.reading.problems == (
        f"{folder.path}: only the first 2 of 3 files are read",
        "3 objects are left out: a pool has at most 3",
    )


def test_objects_of_a_file_that_others_push_out_stay(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files_module, "MAX_FILES", 2)
    folder.write(b=objective("b"), c=objective("c", 3))
    folder.read()
    folder.write(a=objective("a"))
    assert folder.read() == {"a": 1, "b": 1, "c": 3}
    assert "c.yaml: InferenceObjective c stays as it was: the file cannot be read to its end" in (
        folder.problems()
    )
    folder.write(c=None)
    assert folder.read() == {"a": 1, "b": 1}


def test_a_folder_of_many_files_is_looked_at_within_the_cap(folder: Folder):
    for number in range(files_module.MAX_FILES + 50):
        folder.write(**{f"f{number:04}": "# empty"})
    assert len(folder.files.signature()) == 1 + files_module.MAX_FILES


def test_texts_that_have_not_changed_are_not_parsed_again(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    parsed: list[int] = []
    parse = files_module.parse
    monkeypatch.setattr(files_module, "parse", lambda each: parsed.append(each.number) or parse(each))
    folder.write(a=objective("one") + objective("two"))
    folder.read()
    folder.write(a=objective("one") + objective("two", 2))
    assert folder.read() == {"one": 1, "two": 2}
    assert parsed == [1, 2, 2]


def test_every_change_changes_the_signature(folder: Folder):
    seen = [folder.files.signature()]
    folder.write(a=objective("one"))
    seen.append(folder.files.signature())
    folder.write(a=objective("one", 22))
    seen.append(folder.files.signature())
    folder.write(a=None)
    seen.append(folder.files.signature())
    assert len(set(seen[:3])) == 3
    assert seen[3] != seen[2]


def test_a_mounted_config_map_is_followed_through_its_link(tmp_path: Path):
    for version, priority in (("v1", 1), ("v2", 2)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(objective("one", priority))
        os.utime(tmp_path / version / "a.yaml", ns=(0, 0))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount/a.yaml").symlink_to("../..data/a.yaml")
    folder = Folder(tmp_path / "mount")
    before = folder.files.signature()
    assert folder.read() == {"one": 1}
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert folder.files.signature() != before
    assert folder.read() == {"one": 2}


names = st.sampled_from("abc")
contents = st.lists(
    st.one_of(
        st.builds(objective, names, st.integers(-3, 3)),
        st.builds(objective, names, st.just("high")),
        st.just("---\n{\n"),
    ),
    max_size=4,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(contents, contents), min_size=1, max_size=4))
def test_an_object_goes_only_when_its_file_can_be_read_to_its_end(
    tmp_path_factory: pytest.TempPathFactory, versions: list[tuple[str, str]]
):
    folder = Folder(tmp_path_factory.mktemp("objects"))
    for texts in versions:
        folder.write(x=texts[0], y=texts[1])
        before = set(folder.reading.objects)
        sources = {key: kept.file for key, kept in folder.reading.objects.items()}
        found = folder.read()
        for kind, name in before - set(folder.reading.objects):
            text = texts["xy".index(Path(sources[kind, name]).stem)]
            assert "---\n{\n" not in text
            assert not any(f"name: {name}}}" in each for each in texts)
        for name, priority in found.items():
            wanted = [line for each in texts for line in each.split("---\n") if f"name: {name}}}" in line]
            usable = [line for line in wanted if "high" not in line]
            if usable:
                assert usable[0].endswith(f"priority: {priority}}}\n")
