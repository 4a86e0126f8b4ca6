"""Base-model mappings in files: ConfigMaps in llm-d's shape, and plain documents of our own.

A ConfigMap counts when it has llm-d's label; its ``adapters`` are a YAML list in a text. A plain document is
a mapping of ``baseModel``, ``adapters``, ``aliases`` and ``patterns``, or a list of such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dataplane.config.decode import decode_struct
from dataplane.config.document import read_document
from dataplane.config.document_files import DocumentFiles
from dataplane.errors import ConfigError
from ipp.base_models import MAX_MAPPINGS, BaseModelMapping

LABEL: Final = "inference.llm-d.ai/ipp-managed"


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
