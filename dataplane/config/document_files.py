"""Documents in a file, or in the YAML and JSON files of a folder, and whether they have changed.

Everything here blocks on the file system. Names that begin with a dot are left alone, so a mounted ConfigMap
is read once, through its links.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from dataplane.config.document import read_document
from dataplane.config.documents import split_documents
from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file

SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 4 << 20


class PlacedDocument(NamedTuple):
    """Plain data of one document."""

    place: str
    """How messages name it."""
    raw: Any


class DocumentFiles:
    """The documents at one path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: list[tuple[str, FileSignature]] = []

    def have_changed(self) -> bool:
        """Whether anything is other than when it was read."""
        try:
            return self._look() != self._seen
        except OSError:
            return bool(self._seen)

    def read(self, problems: list[ConfigError]) -> Iterator[PlacedDocument]:
        """Every document that can be read; mistakes go to ``problems`` with file and place."""
        try:
            self._seen = self._look()
        except OSError as error:
            problems.append(ConfigError(f"cannot be read: {error.strerror or error}", path=self._path))
            return
        if len(self._seen) > MAX_FILES:
            problems.append(ConfigError(f"holds more than {MAX_FILES} files", path=self._path))
            return
        for file, _ in self._seen:
            yield from _documents_of(file, problems)

    def _look(self) -> list[tuple[str, FileSignature]]:
        path = Path(self._path)
        if not path.is_dir():
            os.stat(path)  # tells why there is none
            return [(self._path, FileSignature.of(self._path))]
        files = sorted(
            str(each) for each in path.iterdir() if each.suffix in SUFFIXES and each.name[0] != "."
        )
        return [(file, FileSignature.of(file)) for file in files]


def _documents_of(file: str, problems: list[ConfigError]) -> Iterator[PlacedDocument]:
    try:
        text = read_regular_file(file, MAX_FILE_BYTES, path=file).decode()
    except ConfigError as error:
        problems.append(error)
        return
    except UnicodeDecodeError as error:
        problems.append(ConfigError(f"is no UTF-8 text: {error}", path=file))
        return
    for document in split_documents(text):
        mistakes: list[ConfigError] = []
        raw = read_document(document.text, mistakes)
        place = f"{file}: {document.place}"
        problems.extend(error.within(place) for error in mistakes)
        if not mistakes:
            yield PlacedDocument(place, raw)
