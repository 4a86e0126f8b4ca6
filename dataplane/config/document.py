"""From configuration text to plain data: YAML or JSON, with the place of every mistake.

What YAML 1.1 makes surprising is switched off: dates and base-60 numbers stay text, ``1e3`` is a number.
Integers beyond 64 bits are floats.
Duplicate keys are refused rather than the last one winning. Size, nesting and the number of values (after
expansion of aliases) are capped, so that no document can exhaust memory.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import yaml

from dataplane.config.documents import split_documents
from dataplane.errors import ConfigError

MAX_DOCUMENT_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 100_000
MAX_READ_TWICE: Final = 64 << 10
"""Longest text, in characters, that the slow parser reads; the largest would take it many seconds."""


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of JSON: null, boolean, integer, float, text."""


def _either(*words: str) -> str:
    """A pattern for each word in lower case, capitalised and in capitals."""
    return "|".join(form for word in words for form in (word, word.capitalize(), word.upper()))


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", rf"~|{_either('null')}|", ["~", "n", "N", ""]),
    ("bool", _either("yes", "no", "true", "false", "on", "off"), list("yYnNtTfFoO")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?", list("-+0123456789.")),
    ("float", r"[-+]?[0-9]+[eE][-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)

_FastLoader: Any = None
"""The same on libyaml, ten times as fast, where PyYAML has it."""
if yaml.__with_libyaml__:
    _FastLoader = type("_FastLoader", (yaml.CSafeLoader,), {})
    _FastLoader.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

_SEVERAL: Final = "but found another document"
"""What the parser says of a second document."""
_TAG: Final = "tag:yaml.org,2002:"
_BOOLEANS: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def join(path: str, key: str | int) -> str:
    """``path`` extended by a key or an index: ``plugins[2].parameters``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def read_document(text: str | bytes, problems: list[ConfigError], *, max_values: int = MAX_VALUES) -> Any:
    """Plain data of a YAML or JSON text; None when it is empty or unreadable.

    Syntax errors, duplicate keys and more than ``max_values`` values are appended to ``problems``.
    """
    if len(text) > MAX_DOCUMENT_BYTES:
        problems.append(ConfigError(f"the document is larger than {MAX_DOCUMENT_BYTES} bytes"))
        return None
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            problems.append(ConfigError(f"not UTF-8 text: byte {error.start} cannot be decoded"))
            return None
    text = text.removeprefix("\ufeff")  # some editors begin a file with a byte order mark
    try:
        if text.lstrip().startswith("{"):
            return _read_json(text, problems, max_values)
        return _read_yaml(text, problems, max_values)
    except RecursionError:
        problems.append(ConfigError(f"nested deeper than {MAX_DEPTH} levels"))
        return None


def _read_json(text: str, problems: list[ConfigError], max_values: int) -> Any:
    """JSON, else YAML's flow notation, which looks the same at its first character."""
    try:
        raw = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        attempt: list[ConfigError] = []
        data = _read_yaml(text, attempt, max_values)
        if attempt:
            where = f"line {error.lineno}, column {error.colno}"
            problems.append(ConfigError(f"{where}: {error.msg}; the document is neither JSON nor YAML"))
        return data
    except ConfigError as error:
        problems.append(error)
        return None
    except ValueError:  # Python's limit against integers that take it quadratic time
        problems.append(ConfigError("has an integer of more than 4300 digits"))
        return None
    return _Builder(problems, max_values).from_json(raw, "", 0)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written, repeated keys included."""


def _refuse_constant(name: str) -> None:
    raise ConfigError(f"{name} is not a JSON value")


def _read_yaml(text: str, problems: list[ConfigError], max_values: int) -> Any:
    try:
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "not valid YAML"
        documents = split_documents(text) if problem == _SEVERAL else []
        if len(documents) == 1:  # the others are empty: templates leave a `---` at the end
            only = "\n" * (documents[0].line - 1) + documents[0].text
            return _read_yaml(only, problems, max_values)
        if problem.startswith("but ") and error.context:
            problem = f"{error.context}, {problem}"
        problems.append(ConfigError(f"{_place(error)}{problem}"))
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(ConfigError(f"line {line}: character U+{error.character:04X} is not allowed in YAML"))
        return None
    return None if node is None else _Builder(problems, max_values).from_yaml(node, "", 0)


def _compose(text: str) -> yaml.Node | None:
    """The root node. ``YAMLError`` when there is none to be had."""
    if _FastLoader is not None:
        try:
            return yaml.compose(text, Loader=_FastLoader)
        except yaml.MarkedYAMLError:
            if len(text) > MAX_READ_TWICE:
                raise
        except (yaml.YAMLError, UnicodeError):
            pass
        # The slow one finds the same mistake, or another one, and words it the way people know it.
    return yaml.compose(text, Loader=_Loader)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""


class _Builder:
    """Turns parsed nodes into plain data, noting repeated keys by path."""

    def __init__(self, problems: list[ConfigError], max_values: int) -> None:
        self._problems = problems
        self._max_values = max_values
        self._values = 0

    def _count(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise RecursionError
        self._values += 1
        if self._values == self._max_values + 1:
            self._problems.append(ConfigError(f"more than {self._max_values} values, aliases expanded"))

    def _put(self, target: dict[str, Any], key: str, value: Any, path: str, line: int | None) -> None:
        if key in target:
            where = f" on line {line}" if line is not None else ""
            self._problems.append(ConfigError(f"the key occurs twice{where}; remove one", path=path))
        target[key] = value

    def from_json(self, raw: Any, path: str, depth: int) -> Any:
        self._count(depth)
        if isinstance(raw, _Pairs):
            result: dict[str, Any] = {}
            for key, value in raw:
                at = join(path, self._text(key, path))
                self._put(result, key, self.from_json(value, at, depth + 1), at, None)
            return result
        if isinstance(raw, list):
            return [self.from_json(item, join(path, i), depth + 1) for i, item in enumerate(raw)]
        if isinstance(raw, str):
            return self._text(raw, path)
        return _number(raw) if type(raw) is int else raw

    def _text(self, text: str, path: str) -> str:
        """The text as it can be written anywhere: escapes can spell halves of characters, which cannot."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            self._problems.append(
                ConfigError(f"U+{code:04X} is half a character; write the whole", path=path)
            )
            return text.encode(errors="replace").decode()
        return text

    def from_yaml(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._count(depth)
        if self._values > self._max_values:
            return None
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            items = enumerate(node.value)
            return [self.from_yaml(item, join(path, i), depth + 1) for i, item in items]
        if isinstance(node, yaml.ScalarNode) and kind in {"str", "null", "bool", "int", "float"}:
            return self._scalar(node, kind, path)
        self._refuse(node, f"the tag {node.tag} is not supported", path)
        return None

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                value = self.from_yaml(value_node, path, depth + 1)
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, dict):
                        merged = {**part, **merged}
            elif not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, "a key must be text", path)
            else:
                key = self._text(key_node.value, path)
                at = join(path, key)
                value = self.from_yaml(value_node, at, depth + 1)
                self._put(result, key, value, at, key_node.start_mark.line + 1)
        return {**merged, **result}

    def _scalar(self, node: yaml.ScalarNode, kind: str, path: str) -> Any:
        value: str = node.value
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return _BOOLEANS[value.lower()]
                case "int":
                    return _number(int(value, 0))
                case "float":
                    return float(value.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except (ValueError, KeyError):
            self._refuse(node, f"{value[:40]!r} cannot be read as {kind}", path)
            return None
        return self._text(value, path)

    def _refuse(self, node: yaml.Node, message: str, path: str) -> None:
        self._problems.append(ConfigError(f"line {node.start_mark.line + 1}: {message}", path=path))


def _number(value: int) -> int | float:
    """The integer if 64 bits hold it, else the nearest float, which no count, port or size accepts."""
    if -(1 << 63) <= value < 1 << 63:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
