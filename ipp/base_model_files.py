"""Base-model mappings in files: ConfigMaps in llm-d's shape, and plain documents of our own.

A ConfigMap counts when it has llm-d's label; its ``adapters`` are a YAML list in a text. A plain document is
a mapping of ``baseModel``, ``adapters``, ``aliases`` and ``patterns``, or a list of such.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dataplane.config.decode import decode_struct
from dataplane.config.document import read_document
from dataplane.config.documents import split_documents
from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file
from ipp.base_models import MAX_MAPPINGS, BaseModelMapping

LABEL: Final = "inference.llm-d.ai/ipp-managed"
SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 4 << 20


class MappingFiles:
    """One file, or the YAML and JSON files of a folder. Everything here blocks."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: list[tuple[str, FileSignature]] = []

    def have_changed(self) -> bool:
        """Whether anything is other than when it was read."""
        try:
            return self._look() != self._seen
        except OSError:
            return bool(self._seen)

    def read(self, problems: list[ConfigError]) -> list[tuple[str, BaseModelMapping]]:
        """Mappings with the place each stands at; mistakes go to ``problems``."""
        found: list[tuple[str, BaseModelMapping]] = []
        try:
            self._seen = self._look()
        except OSError as error:
            problems.append(ConfigError(f"cannot be read: {error.strerror or error}", path=self._path))
            return found
        if len(self._seen) > MAX_FILES:
            problems.append(ConfigError(f"holds more than {MAX_FILES} files", path=self._path))
            return found
        for file, _ in self._seen:
            for mapping in _mappings_of(file, problems):
                found.append(mapping)
                if len(found) > MAX_MAPPINGS:
                    problems.append(ConfigError(f"holds more than {MAX_MAPPINGS} mappings", path=self._path))
                    return found
        return found

    def _look(self) -> list[tuple[str, FileSignature]]:
        path = Path(self._path)
        if not path.is_dir():
            os.stat(path)  # tells why there is none
            return [(self._path, FileSignature.of(self._path))]
        files = sorted(
            str(file) for file in path.iterdir() if file.suffix in SUFFIXES and file.name[0] != "."
        )
        return [(file, FileSignature.of(file)) for file in files]


def _mappings_of(file: str, problems: list[ConfigError]) -> Iterator[tuple[str, BaseModelMapping]]:
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
        for number, each in enumerate(raw if isinstance(raw, list) else [raw]):
            at = f"{place}[{number}]" if isinstance(raw, list) else place
            mapping = None if mistakes else _mapping(each, mistakes)
            if mapping is not None and not mistakes:
                yield at, mapping
        problems.extend(error.within(place) for error in mistakes)


def _mapping(raw: Any, mistakes: list[ConfigError]) -> BaseModelMapping | None:
    """One mapping; None for a ConfigMap that is not for us, and after noting a mistake."""
    if isinstance(raw, Mapping) and raw.get("kind") == "ConfigMap":
        return _of_config_map(raw, mistakes)
    if not isinstance(raw, dict):
        mistakes.append(ConfigError("must be a mapping with baseModel, or a ConfigMap"))
        return None
    return decode_struct(raw, BaseModelMapping, "", mistakes)


def _of_config_map(raw: Mapping[str, Any], mistakes: list[ConfigError]) -> BaseModelMapping | None:
    metadata, data = raw.get("metadata"), raw.get("data")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    if not isinstance(labels, Mapping) or labels.get(LABEL) not in {"true", True}:
        return None
    if not isinstance(data, Mapping) or not isinstance(data.get("baseModel"), str):
        mistakes.append(ConfigError("is missing", path="data.baseModel"))
        return None
    adapters = data.get("adapters", "")
    listed: Any = []
    if isinstance(adapters, str) and adapters.strip():
        inner: list[ConfigError] = []
        listed = read_document(adapters, inner)
        mistakes.extend(error.within("data.adapters") for error in inner)
    if not isinstance(listed, list):
        mistakes.append(ConfigError("must be a YAML list of names", path="data.adapters"))
        return None
    names = [_name(each) for each in listed if each is not None]
    fields = {"baseModel": data["baseModel"].strip(), "adapters": [name for name in names if name]}
    return decode_struct(fields, BaseModelMapping, "data", mistakes)


def _name(value: Any) -> str:
    """A name as YAML may have read it: ``1`` is a name too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()
