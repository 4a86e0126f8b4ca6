"""JSON request bodies: decoded into a struct of the few fields that matter.

A body that does not fit its struct is decoded generically and read leniently, field by field: the model
server is the judge of a request's details, not the picker. Malformed JSON is refused with line, column and
offset.
"""

from __future__ import annotations

import json
import types
import typing
from codecs import BOM_UTF8
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from dataplane.errors import BadRequestError

S = TypeVar("S", bound=msgspec.Struct)
NOTHING: Final = msgspec.Raw()
"""Default of fields whose JSON is kept as it is; absent fields hold this very object."""


class TextPart(msgspec.Struct, gc=False):
    """Base of a part of some content; where a list of parts is expected, a plain text counts as one."""

    text: str | None = None


def decode(body: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    """The body as the decoder's struct. ``BadRequestError`` when it is not a JSON object."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        try:
            raw = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raw = _second_opinion(body)
    except (msgspec.DecodeError, RecursionError):
        raw = _second_opinion(body)
    if not isinstance(raw, dict):
        raise BadRequestError("the request body must be a JSON object")
    try:
        fitted: S = _fit(raw, decoder.type)
    except RecursionError:
        raise _too_deep() from None
    return fitted


def _second_opinion(body: bytes) -> Any:
    """What Python's own reader makes of it: as model servers do, it accepts NaN, and it names the place."""
    if bytes(body[:3]) == BOM_UTF8:
        raise BadRequestError("the request body begins with a byte order mark, which JSON must not have")
    try:
        return json.loads(bytes(body).decode())
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}, offset {error.pos}"
        raise BadRequestError(f"the request body is not valid JSON: {error.msg} ({place})") from None
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the request body is not UTF-8 text (offset {error.start})") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # Python's limit against integers that take it quadratic time
        raise BadRequestError("the request body has an integer of more than 4300 digits") from None


def _too_deep() -> BadRequestError:
    return BadRequestError("the request body is nested too deeply")


@lru_cache(maxsize=64)
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _fit(raw: Any, hint: Any) -> Any:
    """``raw`` as far as it fits ``hint``; None where it does not. Unfit items of collections are left out."""
    if hint is msgspec.Raw:
        return msgspec.Raw(
            json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
        )
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        fitting = (_fit(raw, member) for member in args if member is not types.NoneType)
        return next((value for value in fitting if value is not None), None)
    if origin is list:
        if not isinstance(raw, list):
            return None
        return [value for item in raw if (value := _fit(item, args[0])) is not None]
    if origin is dict:
        if not isinstance(raw, dict):
            return None
        fits = {name: _fit(value, args[1]) for name, value in raw.items()}
        return {name: value for name, value in fits.items() if value is not None}
    return _fit_plain(raw, hint)


def _fit_plain(raw: Any, hint: Any) -> Any:
    """The same for structs and scalars."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if isinstance(raw, str) and issubclass(hint, TextPart):
            return hint(text=raw)
        if not isinstance(raw, dict):
            return None
        hints = _hints(hint)
        found = {name: _fit(raw[name], hints[name]) for name in hints if name in raw}
        return hint(**{name: value for name, value in found.items() if value is not None})
    if hint is int and isinstance(raw, float):
        return int(raw) if raw.is_integer() else None
    return raw if type(raw) is hint else None
