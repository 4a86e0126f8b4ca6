"""Structs back to plain data, as an operator would write them: the inverse of ``decode_struct``."""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from dataplane.config.decode import Duration


def encode_struct(value: msgspec.Struct) -> dict[str, Any]:
    """Every field that says something, defaults included, under its YAML name; durations with their unit.

    Fields that are None or empty text stand for "not given" and are left out.
    """
    hints = typing.get_type_hints(type(value), include_extras=True)
    shown: dict[str, Any] = {}
    for field in msgspec.structs.fields(value):
        item = getattr(value, field.name)
        if item is not None and item != "":
            shown[field.encode_name] = _encode(item, hints[field.name])
    return shown


def duration_text(seconds: float) -> str:
    """A duration as a document writes it: ``250ms``, ``10s``."""
    return f"{seconds * 1000:g}ms" if 0 < abs(seconds) < 1 else f"{seconds:g}s"


def _encode(value: Any, hint: Any) -> Any:
    if isinstance(value, float) and (hint is Duration or Duration in typing.get_args(hint)):
        return duration_text(value)
    if isinstance(value, msgspec.Struct):
        return encode_struct(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_encode(item, None) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item, None) for key, item in value.items()}
    return msgspec.to_builtins(value)
