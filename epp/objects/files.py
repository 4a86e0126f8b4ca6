"""From a file or a folder of files to the objects of a pool, with what is wrong kept apart from what counts.

A document with a mistake is left out and said; the rest counts. On a later reading the earlier version of an
object stays for as long as its document cannot be used: that of a document whose kind and name can be read,
or, where a file has a document or a whole text that cannot be read at all, those of everything that came from
the file and is not in it any more. Only a file that can be read to its end, or that is gone from its folder,
takes objects away.

Of objects of one kind and name the first counts, files in order of their names. Texts that have not changed
are not parsed again. Everything here blocks on the file system and is called beside the event loop, by one
caller at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dataplane.config.document import MAX_DOCUMENT_BYTES, read_document
from dataplane.config.documents import TextDocument, split_documents
from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file
from epp.objects.documents import (
    PoolDeclaration,
    ReadObject,
    Scope,
    Value,
    items_of,
    read_object,
)
from epp.objects.model import InferenceObjective, ModelRewrite

MAX_FILES: Final = 200
"""Files of a folder."""
MAX_OBJECTS: Final = 5000
"""Objects of all files together."""
SUFFIXES: Final = (".yaml", ".yml", ".json")

Key = tuple[str, str]
"""Kind and name."""
Parsed = tuple[Any, tuple[ConfigError, ...]]
"""Plain data of a document, and what is wrong with its text."""


class Kept(NamedTuple):
    """An object in use and where it comes from."""

    value: Value
    file: str
    place: str
    """Which document of the file."""
    outdated: bool = False
    """Whether its document cannot be used any more and this is the version from before."""


class Reading(msgspec.Struct, frozen=True):
    """One reading of all files."""

    objects: Mapping[Key, Kept] = {}
    problems: tuple[str, ...] = ()
    """What is wrong with documents that do not count."""
    skipped: tuple[str, ...] = ()
    """Documents that are meant for other pools."""
    notes: tuple[str, ...] = ()
    """What is odd about documents that count."""

    def objectives(self) -> Iterator[InferenceObjective]:
        """In the order of their documents."""
        return (kept.value for kept in self.objects.values() if isinstance(kept.value, InferenceObjective))

    def rewrites(self) -> Iterator[ModelRewrite]:
        """Likewise."""
        return (kept.value for kept in self.objects.values() if isinstance(kept.value, ModelRewrite))

    def pool(self) -> PoolDeclaration | None:
        """What a document says of the pool itself."""
        pools = (kept.value for kept in self.objects.values() if isinstance(kept.value, PoolDeclaration))
        return next(pools, None)


class ObjectFiles:
    """Reads one file, or the YAML and JSON files of one folder."""

    def __init__(self, path: str, scope: Scope) -> None:
        self._path = path
        self._scope = scope
        self._parsed: dict[str, Parsed] = {}
        """By the text of a document, for the documents of last time."""

    def signature(self) -> tuple[FileSignature, ...]:
        """What tells two states of the files apart."""
        try:
            names = self._names()
        except ConfigError:
            names = []
        return (FileSignature.of(self._path), *map(FileSignature.of, names[:MAX_FILES]))

    def read(self, earlier: Reading) -> Reading:
        """The objects there are now. ``ConfigError`` when the file or folder itself cannot be read."""
        names = self._names()
        parsed = dict[str, Parsed]()
        merged = _Merger(earlier)
        if len(names) > MAX_FILES:
            merged.unread(
                names[MAX_FILES:],
                f"{self._path}: only the first {MAX_FILES} of {len(names)} files are read",
            )
        for name in names[:MAX_FILES]:
            try:
                text = _text(name)
            except ConfigError as error:
                if name == self._path:
                    raise
                merged.unread([name], str(error))
                continue
            for document in split_documents(text):
                known = self._parsed.get(document.text) or parsed.get(document.text) or parse(document)
                parsed[document.text] = known
                for place, found in objects_in(document, known, self._scope, merged.position):
                    merged.add(name, place, found)
        self._parsed = parsed
        return merged.result(names)

    def _names(self) -> list[str]:
        if not os.path.isdir(self._path):
            return [self._path]
        try:
            listed = sorted(os.listdir(self._path))
        except OSError as error:
            raise ConfigError(f"cannot be read ({error.strerror})", path=self._path) from error
        return [
            os.path.join(self._path, name)
            for name in listed
            if name.endswith(SUFFIXES) and not name.startswith(".")
        ]


def parse(document: TextDocument) -> Parsed:
    """Read the text of a document."""
    wrong: list[ConfigError] = []
    raw = read_document(document.text, wrong)
    return raw, tuple(wrong)


def objects_in(
    document: TextDocument, parsed: Parsed, scope: Scope, position: int
) -> Iterator[tuple[str, ReadObject]]:
    """(place, object) of a document: one, or those of a ``List``."""
    raw, wrong = parsed
    items = None if wrong else items_of(raw)
    if items is None:
        found = ReadObject(problems=list(wrong)) if wrong else read_object(raw, scope, position)
        yield document.place, found
        return
    for offset, (path, item) in enumerate(items):
        yield f"{document.place}: {path}", read_object(item, scope, position + offset)


class _Merger:
    """Puts one reading together."""

    def __init__(self, earlier: Reading) -> None:
        self._earlier = earlier.objects
        self._objects: dict[Key, Kept] = {}
        self._unusable: dict[Key, None] = {}
        """Identified documents that cannot be used."""
        self._holes: dict[str, None] = {}
        """Files not all of whose documents can be identified."""
        self._beyond = 0
        self.position = 0
        self.problems: list[str] = []
        self.skipped: list[str] = []
        self.notes: list[str] = []

    def add(self, file: str, place: str, found: ReadObject) -> None:
        self.position += 1
        key, where = (found.kind, found.name), f"{file}: {place}"
        if found.problems:
            self.problems += [f"{where}: {problem}" for problem in found.problems]
            if all(key):
                self._unusable[key] = None
            else:
                self._holes[file] = None
        elif found.value is None:
            self.skipped.append(f"{where}: {found.kind} {found.name} is not for this pool: {found.skipped}")
        elif (first := self._objects.get(key)) is not None:
            there = f"{first.file}: {first.place}"
            self.problems.append(f"{where}: {found.kind} {found.name} is left out, it is in {there} already")
        elif len(self._objects) >= MAX_OBJECTS:
            self._beyond += 1
        else:
            self._objects[key] = Kept(found.value, file, place)
            self.notes += [f"{where}: {note}" for note in found.notes]

    def unread(self, files: Iterable[str], problem: str) -> None:
        self.problems.append(problem)
        self._holes.update(dict.fromkeys(files))

    def result(self, files: Iterable[str]) -> Reading:
        present = set(files)
        for key, kept in self._earlier.items():
            lost = key in self._unusable or (kept.file in self._holes and kept.file in present)
            if lost and key not in self._objects and len(self._objects) < MAX_OBJECTS:
                self._objects[key] = kept._replace(outdated=True)
                self.problems.append(
                    f"{kept.file}: {key[0]} {key[1]} stays as it was: its document cannot be used"
                    if key in self._unusable
                    else f"{kept.file}: {key[0]} {key[1]} stays as it was: the file cannot be read to its end"
                )
        if self._beyond:
            self.problems.append(f"{self._beyond} objects are left out: a pool has at most {MAX_OBJECTS}")
        return Reading(self._objects, tuple(self.problems), tuple(self.skipped), tuple(self.notes))


def _text(name: str) -> str:
    data = read_regular_file(name, MAX_DOCUMENT_BYTES, path=name)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", path=name) from error
