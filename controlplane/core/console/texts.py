"""Documents as text that people edit: read, written, and where in the text each mistake is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from controlplane.core.errors import InvalidError, ServiceError
from controlplane.core.resources import Document
from dataplane.config.document import read_document
from dataplane.errors import ConfigError

MAX_LOCATED: Final = 128 << 10
"""Longest text, in characters, in which places are looked for: parsing it once more takes as long again."""

_Loader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_LINE: Final = re.compile(r"^line (\d+)")
_NAMES: Final = ("name", "pluginRef", "type")
"""Fields by which paths call the entries of a list."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a text."""

    path: str
    message: str
    line: int | None = None
    """Where, counted from one; None when it is nowhere in particular."""
    text: str = ""
    """What the line says."""


def read(text: str) -> Document:
    """The document a text means. ``InvalidError`` with everything that is no YAML in it."""
    problems: list[ConfigError] = []
    found = read_document(text, problems)
    if not problems and not (isinstance(found, dict) and isinstance(found.get("metadata"), dict)):
        problems.append(ConfigError("must be a document: apiVersion, kind, metadata, and what it says"))
    if problems:
        raise InvalidError.of(problems)
    document: Document = found
    return document


def written(document: Mapping[str, Any]) -> str:
    """A document as YAML, without what the control plane adds to it."""
    added = {"resourceVersion"}
    metadata = {key: value for key, value in document["metadata"].items() if key not in added}
    shown = {**document, "metadata": metadata}
    shown.pop("status", None)
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100)


def problems_of(error: ServiceError, text: str) -> list[Problem]:
    """Every reason of a refusal, with its place in the text."""
    if not error.details:
        return [Problem("", error.message)]
    root, lines = _composed(text), text.splitlines()
    found = []
    for detail in error.details:
        said = _LINE.match(detail.message)
        line = int(said[1]) if said else _line_of(root, detail.path) if detail.path else None
        shown = lines[line - 1].strip()[:80] if line is not None and 0 < line <= len(lines) else ""
        found.append(Problem(detail.path, detail.message, line, shown))
    return found


def _composed(text: str) -> yaml.Node | None:
    if len(text) > MAX_LOCATED:
        return None
    try:
        found: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, UnicodeError):
        return None
    return found


def _line_of(root: yaml.Node | None, path: str) -> int | None:
    """The line of what a path leads to, or of the last thing on the way that is there."""
    node, line = root, None
    for index, name in _STEP.findall(path):
        found = _within(node, index or name)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def _within(node: yaml.Node | None, step: str) -> tuple[yaml.Node, yaml.Node] | None:
    """What shows the place of a member, and the member."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == step:
                return key, value
    if isinstance(node, yaml.SequenceNode):
        if step.isdecimal() and len(step) < 10 and int(step) < len(node.value):
            return node.value[int(step)], node.value[int(step)]
        for item in node.value:
            if step in _names_of(item):
                return item, item
    return None


def _names_of(node: yaml.Node) -> list[str]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [
        value.value
        for key, value in node.value
        if isinstance(value, yaml.ScalarNode) and isinstance(key, yaml.ScalarNode) and key.value in _NAMES
    ]
