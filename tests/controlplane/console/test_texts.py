"""Where in a text that people edit each mistake is."""

from __future__ import annotations

import pytest

from controlplane.core.console.texts import MAX_LOCATED, problems_of, read, written
from controlplane.core.errors import ConflictError, Detail, InvalidError

TEXT = """kind: X
metadata: {name: a}
plugins:
- type: first
- name: second
  parameters:
    words:
    - one
    - two
"""


def line(path: str, text: str = TEXT, message: str = "is wrong") -> tuple[int | None, str]:
    (problem,) = problems_of(InvalidError("no", [Detail(path, message)]), text)
    assert (problem.path, problem.message) == (path, message)
    return problem.line, problem.text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("kind", (1, "kind: X")),
        ("metadata.name", (2, "metadata: {name: a}")),
        ("plugins[0].type", (4, "- type: first")),
        ("plugins[first].type", (4, "- type: first")),
        ("plugins[second].parameters.words[1]", (9, "- two")),
        ("plugins[1].parameters.words[7].more", (7, "words:")),
        ("plugins[1].parameters.missing", (6, "parameters:")),
        ("plugins[9]", (3, "plugins:")),
        ("plugins[" + "9" * 40 + "]", (3, "plugins:")),
        ("nowhere", (None, "")),
        ("", (None, "")),
    ],
)
def test_a_mistake_is_at_the_line_of_its_path_or_of_what_should_hold_it(
    path: str, expected: tuple[int | None, str]
) -> None:
    assert line(path) == expected


def test_a_text_that_cannot_be_parsed_has_its_line_in_the_message() -> None:
    with pytest.raises(InvalidError) as caught:
        read("kind: X\nmetadata: {name: [\n")
    (problem,) = problems_of(caught.value, "kind: X\nmetadata: {name: [\n")
    assert problem.line == 3


@pytest.mark.parametrize("text", ["[" * 100_000, "a: \x00", "a: b\n" * 100_000, "a: &a [*a]", "", "\ud800"])
def test_whatever_the_text_a_mistake_can_be_told(text: str) -> None:
    assert line("b[0].c", text) == (None, "")
    assert line("a", "a: 1\n" + "#" * MAX_LOCATED) == (None, "")


@pytest.mark.parametrize("text", ["", "[1]", "a: 1", "metadata: x", "null"])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="must be a document"):
        read(text)


def test_a_refusal_without_parts_is_one_problem() -> None:
    (problem,) = problems_of(ConflictError("it is there already"), TEXT)
    assert (problem.path, problem.message, problem.line) == ("", "it is there already", None)


def test_a_document_is_written_without_what_the_control_plane_adds() -> None:
    metadata = {"name": "a", "resourceVersion": "7"}
    text = written({"kind": "X", "metadata": metadata, "spec": {"b": "ä"}, "status": {"c": 1}})
    assert text == "kind: X\nmetadata:\n  name: a\nspec:\n  b: ä\n"
