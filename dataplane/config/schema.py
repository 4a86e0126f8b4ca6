"""JSON Schema (draft 7, which editors understand best) of the structs that configuration is decoded into.

Mirrors ``dataplane.config.decode``: what the schema refuses the decoder refuses too. The decoder refuses
more, because structs check how values fit together and documents name plugins. Descriptions are the
docstrings of classes and fields.
"""

from __future__ import annotations

import enum
import types
import typing
from datetime import datetime
from typing import Any, Final

import msgspec

from dataplane.config.decode import Duration, Quantity
from dataplane.config.docstrings import class_doc, field_docs
from dataplane.config.encode import duration_text

DRAFT: Final = "http://json-schema.org/draft-07/schema#"

Schema = dict[str, Any]

DURATION: Final[Schema] = {
    "anyOf": [
        {
            "type": "string",
            "pattern": "^[-+]?(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)$",
        },
        {"const": 0},
    ]
}
"""Seconds as Go writes them: ``1m30s``."""
_QUANTITY: Final[Schema] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {
            "type": "string",
            "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE]\\+?[0-9]{1,2})?B?$",
        },
    ]
}
_SCALARS: Final[dict[Any, Schema]] = {
    Any: {},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    dict: {"type": "object"},
    list: {"type": "array"},
    types.NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    Duration: DURATION,
    Quantity: _QUANTITY,
}
_BOUNDS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_DEPRECATED: Final = ("Deprecated", "Another name")
"""How the text of a field begins that is accepted for old files only."""


class Definitions(dict[str, Schema]):
    """Schemas of structs that others refer to, by name; ``place`` is where the whole has them."""

    def __init__(self, place: str = "#/definitions/") -> None:
        super().__init__()
        self.place = place
        self._names: dict[type[msgspec.Struct], str] = {}

    def name_of(self, kind: type[msgspec.Struct]) -> str:
        """The struct's name here: its class's, with the module where another class has that already."""
        name = self._names.get(kind)
        if name is None:
            name = kind.__name__
            if name in self:
                name = f"{kind.__module__}.{name}"
            self._names[kind] = name
            self[name] = {}  # a struct that contains itself refers to this place
            self[name] = struct_schema(kind, self)
        return name


def struct_schema(kind: type[msgspec.Struct], definitions: Definitions) -> Schema:
    """The schema of one struct, its class's own text as description.

    Structs below it are put into ``definitions`` and referred to.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    docs = field_docs(kind)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in msgspec.structs.fields(kind):
        schema = dict(type_schema(hints[field.name], definitions))
        text = docs.get(field.name, "")
        if not field.required:
            schema = _or_null(schema)
        if text:
            schema["description"] = text
        if text.startswith(_DEPRECATED):
            schema["deprecated"] = True
        if _is_plain(field.default) and field.default is not None:
            is_time = hints[field.name] is Duration
            schema["default"] = duration_text(field.default) if is_time else field.default
        properties[field.encode_name] = schema
        if field.required:
            required.append(field.encode_name)
    result: Schema = {
        "type": "object" if required else ["object", "null"],
        "properties": properties,
        "additionalProperties": False,
    }
    if text := class_doc(kind):
        result["description"] = text
    if required:
        result["required"] = required
    return result


def type_schema(hint: Any, definitions: Definitions) -> Schema:
    """The schema of an annotated type. ``TypeError`` for one that configuration has no notation for."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bounded(dict(type_schema(args[0], definitions)), args[1:])
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (types.UnionType, typing.Union):
        return _union([type_schema(arg, definitions) for arg in args])
    if origin in (list, tuple, set, frozenset):
        return {"type": "array", "items": type_schema(args[0], definitions)}
    if origin is dict:
        values = type_schema(args[1], definitions)
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {"$ref": definitions.place + definitions.name_of(hint)}
    raise TypeError(f"{hint!r} has no JSON schema")


def _or_null(schema: Schema) -> Schema:
    """The same, or null: a field that is null is one that is absent."""
    if not schema:
        return schema  # anything at all, null included
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if "anyOf" in schema:
        members = schema["anyOf"]
        return schema if {"type": "null"} in members else {**schema, "anyOf": [*members, {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema if "null" in types else {**schema, "type": [*types, "null"]}


def _union(members: list[Schema]) -> Schema:
    """One of several; plain types are merged, as in ``type: [string, null]``."""
    if all(isinstance(member.get("type"), str) for member in members):
        merged: Schema = {}
        for member in members:
            merged |= {key: value for key, value in member.items() if key != "type"}
        return merged | {"type": [member["type"] for member in members]}
    return {"anyOf": members}


def _bounded(schema: Schema, metas: tuple[Any, ...]) -> Schema:
    for meta in metas:
        if not isinstance(meta, msgspec.Meta):
            continue
        for name, keyword in _BOUNDS.items():
            if (value := getattr(meta, name)) is not None:
                schema[keyword] = value
        unit = {"array": "Items", "object": "Properties"}.get(schema.get("type", ""), "Length")
        for name, keyword in (("min_length", "min"), ("max_length", "max")):
            if (value := getattr(meta, name)) is not None:
                schema[f"{keyword}{unit}"] = value
    return schema


def _is_plain(default: Any) -> bool:
    return isinstance(default, bool | int | float | str) or default is None
