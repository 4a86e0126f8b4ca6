"""Plain data to typed structs, strictly, noting every mistake with its path.

``msgspec.convert`` stops at the first error; an operator wants them all. Structs, lists, maps and optional
values are walked here; single values are converted by msgspec. What cannot be read takes the field's default
and a problem is noted, so that reading always yields a value to go on with.

Unknown fields are refused with a suggestion. A field that is null is one that is absent, as in Go and
Kubernetes: an empty ``plugins:`` whose entries are all commented out is an empty list. Numbers are finite.
"""

from __future__ import annotations

import math
import re
import types
import typing
from functools import lru_cache
from typing import Any, Final, NewType, TypeVar

import msgspec
from msgspec.structs import FieldInfo

from dataplane.config.document import join
from dataplane.config.problems import MAX_PROBLEMS, each_of
from dataplane.errors import ConfigError, did_you_mean
from dataplane.units import parse_duration, parse_quantity

Duration = NewType("Duration", float)
"""Seconds, written as Go duration text: ``250ms``, ``1m30s``, ``0``."""

Quantity = NewType("Quantity", int)
"""A whole number, written as one or as a Kubernetes quantity: ``1000``, ``500M``, ``1Gi``."""

S = TypeVar("S", bound=msgspec.Struct)

_UNREADABLE: Final = object()
_AT: Final = re.compile(r" - at `\$(.*)`$")


def decode_struct(raw: Any, kind: type[S], path: str, problems: list[ConfigError]) -> S | None:
    """A ``kind`` from plain data; each mistake is appended to ``problems`` with its path below ``path``.

    After a mistake the result holds defaults in its place; None when a field without default is missing, or
    when the defaults alone do not pass the struct's own checks.
    """
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        problems.append(ConfigError(f"expected a mapping, got {_name(raw)}", path=path))
        return _default(kind)
    known = _fields(kind)
    values: dict[str, Any] = {}
    for key, item in raw.items():
        found = known.get(key)
        if found is None:
            hint = (did_you_mean(key, known) if len(problems) < MAX_PROBLEMS else "") or _listed(known)
            problems.append(ConfigError(f"unknown field{hint}", path=join(path, key)))
            continue
        field, hint_type = found
        if item is None and not field.required and not _takes_null(hint_type):
            continue
        value = _decode(item, hint_type, join(path, key), problems)
        if value is not _UNREADABLE:
            values[field.name] = value
    for key, (field, _) in known.items():
        if field.required and key not in raw:
            problems.append(ConfigError("is required", path=join(path, key)))
    return _construct(kind, values, path, problems)


def _construct(kind: type[S], values: dict[str, Any], path: str, problems: list[ConfigError]) -> S | None:
    """The struct, whose own checks may find more mistakes."""
    if any(field.required and field.name not in values for field, _ in _fields(kind).values()):
        return None
    try:
        return kind(**values)
    except ConfigError as error:
        problems.extend(each.within(path) if path else each for each in each_of(error))
    except ValueError as error:
        problems.append(ConfigError(str(error), path=path))
    return _default(kind)


def _default(kind: type[S]) -> S | None:
    """What stands in for a struct that cannot be read, whose mistake has been noted."""
    if any(field.required for field, _ in _fields(kind).values()):
        return None
    try:
        return kind()
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _fields(kind: type[msgspec.Struct]) -> dict[str, tuple[FieldInfo, Any]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {f.encode_name: (f, hints[f.name]) for f in msgspec.structs.fields(kind)}


def _takes_null(hint: Any) -> bool:
    """Whether null is a value of its own there, and so is not the default."""
    return hint is Any or types.NoneType in typing.get_args(hint)


def _listed(known: dict[str, Any]) -> str:
    return f"; known here: {', '.join(known)}" if known else "; there are none here"


def _decode(raw: Any, hint: Any, path: str, problems: list[ConfigError]) -> Any:
    """A value of the annotated type, or ``_UNREADABLE`` after noting why."""
    if hint is Duration or hint is Quantity:
        return _measure(raw, hint, path, problems)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        members = [a for a in args if a is not types.NoneType]
        if raw is None and len(members) < len(args):
            return None
        if len(members) == 1:
            return _decode(raw, members[0], path, problems)
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        struct = decode_struct(raw, hint, path, problems)
        return _UNREADABLE if struct is None else struct
    elif origin is list:
        if not isinstance(raw, list):
            return _wrong(f"expected a list, got {_name(raw)}", path, problems)
        items = [_decode(item, args[0], join(path, i), problems) for i, item in enumerate(raw)]
        readable = [item for item in items if item is not _UNREADABLE]
        return readable if readable or not raw else _UNREADABLE  # lest the list be called empty as well
    elif origin is dict and args[0] is str and args[1] is not Any:
        if not isinstance(raw, dict):
            return _wrong(f"expected a mapping, got {_name(raw)}", path, problems)
        pairs = {k: _decode(v, args[1], join(path, k), problems) for k, v in raw.items()}
        return {k: v for k, v in pairs.items() if v is not _UNREADABLE}
    elif origin is typing.Literal:
        return _choice(raw, args, path, problems)
    elif origin is typing.Annotated and _lists_choices(args[0]) and isinstance(raw, list):
        before = len(problems)
        _decode(raw, args[0], path, problems)
        if len(problems) > before:
            return _UNREADABLE
    return _convert(raw, hint, path, problems)


def _lists_choices(hint: Any) -> bool:
    return typing.get_origin(hint) is list and typing.get_origin(typing.get_args(hint)[0]) is typing.Literal


def _choice(raw: Any, allowed: tuple[Any, ...], path: str, problems: list[ConfigError]) -> Any:
    """One of the allowed values, which the problem lists."""
    if any(raw == value and type(raw) is type(value) for value in allowed):
        return raw
    hint = did_you_mean(raw, map(str, allowed)) if isinstance(raw, str) else ""
    got = f"'{raw}'" if isinstance(raw, str) else _name(raw)
    return _wrong(f"must be one of {', '.join(map(str, allowed))}; got {got}{hint}", path, problems)


def _convert(raw: Any, hint: Any, path: str, problems: list[ConfigError]) -> Any:
    try:
        found = msgspec.convert(raw, hint)
    except msgspec.ValidationError as error:
        text = str(error)
        if at := _AT.search(text):
            path, text = path + at[1], text[: at.start()]
        return _wrong(text.replace("`", "").replace("Expected", "expected", 1), path, problems)
    except UnicodeEncodeError:  # JSON can say it, and msgspec compares by UTF-8
        return _wrong("holds what is no text: half a character", path, problems)
    if isinstance(found, float) and not math.isfinite(found) and hint is not Any:
        return _wrong("must be a finite number", path, problems)
    return found


def _measure(raw: Any, hint: Any, path: str, problems: list[ConfigError]) -> Any:
    """A duration or quantity. A bare number is a quantity; as a duration it lacks its unit."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        kind = "a duration such as 250ms" if hint is Duration else "a quantity such as 500M"
        return _wrong(f"expected {kind}, got {_name(raw)}", path, problems)
    if hint is Quantity and str(raw).startswith("-"):
        return _wrong("must not be negative", path, problems)
    try:
        return parse_duration(str(raw)) if hint is Duration else parse_quantity(str(raw))
    except ValueError as error:
        return _wrong(str(error), path, problems)


def _wrong(message: str, path: str, problems: list[ConfigError]) -> object:
    problems.append(ConfigError(message, path=path))
    return _UNREADABLE


def _name(raw: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "a boolean", int: "a number"}
    return "nothing" if raw is None else names.get(type(raw), "a number")
