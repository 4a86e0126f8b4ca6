"""Base-model mappings in files: ConfigMaps in llm-d's shape, and plain documents of our own.

A ConfigMap counts when it has llm-d's label; its ``adapters`` are a YAML list in a text. Mounted in a pod it
is a folder with the files ``baseModel`` and ``adapters``, and counts as well: whoever mounts it means it. A
plain document is a mapping of ``baseModel``, ``adapters``, ``aliases`` and ``patterns``, or a list of such.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dataplane.config.decode import decode_struct
from dataplane.config.document import read_document
from dataplane.config.document_files import MAX_FILE_BYTES, DocumentFiles
from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file
from ipp.base_models import MAX_MAPPINGS, BaseModelMapping

LABEL: Final = "inference.llm-d.ai/ipp-managed"
BASE_MODEL: Final = "baseModel"
ADAPTERS: Final = "adapters"
"""Keys of a ConfigMap's data, and names of files where it is mounted."""
MAX_MOUNTS: Final = 1000


class MappingFiles:
    """All mappings at one path: a file, or a folder with documents, and with mounted ConfigMaps.

    Everything here blocks on the file system.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._documents = DocumentFiles(path)
        self._seen: list[tuple[str, FileSignature]] = []

    def have_changed(self) -> bool:
        """Whether anything is other than when it was read."""
        return self._documents.have_changed() or self._look() != self._seen

    def read(self, problems: list[ConfigError]) -> list[tuple[str, BaseModelMapping]]:
        """Mappings with the place each stands at; mistakes go to ``problems``."""
        self._seen = self._look()
        found = read_mappings(self._documents, problems)
        for file, _ in self._seen:
            if file.endswith(BASE_MODEL):
                folder = file[: -len(BASE_MODEL) - 1]
                mistakes: list[ConfigError] = []
                mapping = _of_mount(folder, mistakes)
                problems.extend(error.within(folder) for error in mistakes)
                if mapping is not None and not mistakes:
                    found.append((folder, mapping))
        return found

    def _look(self) -> list[tuple[str, FileSignature]]:
        """The files of mounted ConfigMaps: in the folder itself, and in folders in it."""
        if not self._path.is_dir():
            return []
        try:
            inner = sorted(each for each in self._path.iterdir() if each.is_dir() and each.name[0] != ".")
        except OSError:
            return []
        mounts = [each for each in (self._path, *inner) if (each / BASE_MODEL).exists()][:MAX_MOUNTS]
        files = [str(each / name) for each in mounts for name in (BASE_MODEL, ADAPTERS)]
        return [(file, FileSignature.of(file)) for file in files]


def _of_mount(folder: str, mistakes: list[ConfigError]) -> BaseModelMapping | None:
    data: dict[str, str] = {}
    for name in (BASE_MODEL, ADAPTERS):
        file = os.path.join(folder, name)
        if name == ADAPTERS and not os.path.exists(file):
            continue
        try:
            data[name] = read_regular_file(file, MAX_FILE_BYTES, path=name).decode()
        except ConfigError as error:
            mistakes.append(error)
        except UnicodeDecodeError as error:
            mistakes.append(ConfigError(f"is no UTF-8 text: {error}", path=name))
    return None if mistakes else _of_data(data, "", mistakes)


def read_mappings(files: DocumentFiles, problems: list[ConfigError]) -> list[tuple[str, BaseModelMapping]]:
    """Mappings with the place each stands at; mistakes go to ``problems``. Blocks."""
    found: list[tuple[str, BaseModelMapping]] = []
    for place, raw in files.read(problems):
        for number, each in enumerate(raw if isinstance(raw, list) else [raw]):
            at = f"{place}[{number}]" if isinstance(raw, list) else place
            mistakes: list[ConfigError] = []
            mapping = _mapping(each, mistakes)
            problems.extend(error.within(at) for error in mistakes)
            if mapping is not None and not mistakes:
                found.append((at, mapping))
                if len(found) > MAX_MAPPINGS:
                    problems.append(ConfigError(f"there are more than {MAX_MAPPINGS} mappings", path=at))
                    return found
    return found


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
    if not isinstance(data, Mapping) or not isinstance(data.get(BASE_MODEL), str):
        mistakes.append(ConfigError("is missing", path=f"data.{BASE_MODEL}"))
        return None
    return _of_data(data, "data", mistakes)


def _of_data(data: Mapping[str, Any], path: str, mistakes: list[ConfigError]) -> BaseModelMapping | None:
    """A ConfigMap's data as a mapping."""
    adapters = data.get(ADAPTERS, "")
    at = f"{path}.{ADAPTERS}" if path else ADAPTERS
    listed: Any = []
    if isinstance(adapters, str) and adapters.strip():
        inner: list[ConfigError] = []
        listed = read_document(adapters, inner)
        mistakes.extend(error.within(at) for error in inner)
    if not isinstance(listed, list):
        mistakes.append(ConfigError("must be a YAML list of names", path=at))
        return None
    names = [_name(each) for each in listed if each is not None]
    fields = {BASE_MODEL: data[BASE_MODEL].strip(), ADAPTERS: [name for name in names if name]}
    return decode_struct(fields, BaseModelMapping, path, mistakes)


def _name(value: Any) -> str:
    """A name as YAML may have read it: ``1`` is a name too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()
