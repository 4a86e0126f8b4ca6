"""A text of several YAML documents, taken apart before any of them is read.

A parser that reads the whole stream loses everything behind a mistake. Here the stream is cut at its ``---``
and ``...`` lines, which inside a document can only be its end, so a document with a mistake costs no other.
"""

from __future__ import annotations

from typing import NamedTuple


class TextDocument(NamedTuple):
    """One document that is not empty."""

    number: int
    """From 1, empty documents not counted."""
    line: int
    """Line of the text at which it begins, from 1."""
    text: str

    @property
    def place(self) -> str:
        """How messages name it; line numbers in its problems count from here."""
        return f"document {self.number} (from line {self.line})"


def split_documents(text: str) -> list[TextDocument]:
    """The documents in order. A byte order mark before the first belongs to none."""
    found: list[TextDocument] = []
    start, lines = 1, list[str]()

    def end() -> None:
        if any(_has_content(line) for line in lines):
            found.append(TextDocument(len(found) + 1, start, "\n".join(lines)))

    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line[:3] in {"---", "..."} and line[3:4] in {"", " ", "\t", "\r"}:
            end()
            # What stands behind the marker belongs to the document, in the same column.
            start, lines = number, [f"   {line[3:]}" if line.startswith("-") else ""]
        else:
            lines.append(line)
    end()
    return found


def _has_content(line: str) -> bool:
    bare = line.strip()
    return bool(bare) and bare[0] not in "#%"
