"""A stream of documents is taken apart without being read."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.documents import TextDocument, split_documents


def texts(text: str) -> list[str]:
    """The documents' texts."""
    return [document.text for document in split_documents(text)]


def test_one_document_needs_no_marker():
    assert split_documents("a: 1\nb: 2\n") == [TextDocument(1, 1, "a: 1\nb: 2\n")]


def test_documents_are_numbered_and_know_their_lines():
    found = split_documents("# intro\n---\na: 1\n---\n\n# nothing\n---\nb: [\n...\nc: 3")
    assert [(d.number, d.line, d.text.strip()) for d in found] == [
        (1, 2, "a: 1"),
        (2, 7, "b: ["),
        (3, 9, "c: 3"),
    ]
    assert found[1].place == "document 2 (from line 7)"


def test_what_stands_behind_a_marker_belongs_to_its_document():
    (found,) = split_documents("--- {a: 1}\n")
    assert (found.line, yaml.safe_load(found.text)) == (1, {"a": 1})


def test_words_that_begin_like_a_marker_are_none():
    assert texts("a: |\n  ---\n----: 1\n") == ["a: |\n  ---\n----: 1\n"]


def test_text_without_content_has_no_documents():
    assert texts("") == []
    assert texts("---\n# only a comment\n%YAML 1.2\n---\n") == []


values = st.recursive(
    st.none() | st.integers() | st.text(alphabet="ab-#:.\n |>", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
)


@given(st.lists(st.dictionaries(st.text("abc", min_size=1), values, min_size=1), max_size=4))
def test_it_agrees_with_the_parser_of_whole_streams(documents: list[dict[str, object]]):
    stream = yaml.safe_dump_all(documents, explicit_start=True)
    assert [yaml.safe_load(text) for text in texts(stream)] == documents


def test_a_byte_order_mark_is_no_document():
    assert texts("\ufeff# intro\n---\na: 1\n") == texts("# intro\n---\na: 1\n")
    assert split_documents("\ufeff---\na: 1") == split_documents("---\na: 1")
