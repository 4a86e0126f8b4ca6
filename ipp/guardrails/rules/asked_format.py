"""The JSON Schema of the answer that a request itself asks for, as each API writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ipp.guardrails.rules.fields import ABSENT, Keys, look

ANY: Final[Mapping[str, Any]] = {}
OBJECT: Final[Mapping[str, Any]] = {"type": "object"}

_FORMATS: Final[tuple[Keys, ...]] = (
    ("response_format",),
    ("text", "format"),
    ("output_format",),
    ("output_config", "format"),
)
"""Objects with a ``type``: of chat and completions, of responses, of Anthropic messages."""
_SCHEMAS: Final[tuple[Keys, ...]] = (
    ("guided_json",),
    ("structured_outputs", "json"),
    ("format",),
    ("generationConfig", "responseJsonSchema"),
    ("generationConfig", "_responseJsonSchema"),
    ("generation_config", "response_json_schema"),
)
"""A schema as it is: of vLLM, Ollama and Gemini."""
_OPEN_API: Final[tuple[Keys, ...]] = (
    ("generationConfig", "responseSchema"),
    ("generation_config", "response_schema"),
)
"""Of Gemini as well: types are in capitals."""
_MEDIA_TYPES: Final[tuple[Keys, ...]] = (
    ("generationConfig", "responseMimeType"),
    ("generation_config", "response_mime_type"),
)
MAX_DEPTH: Final = 64


def asked_schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema; None when the request does not ask for JSON."""
    for keys in _FORMATS:
        found = look(body, keys)
        if isinstance(found, Mapping) and (schema := _of_format(found)) is not None:
            return schema
    for keys in _SCHEMAS:
        found = look(body, keys)
        if isinstance(found, Mapping):
            return found
        if found == "json":
            return ANY
    for keys in _OPEN_API:
        found = look(body, keys)
        if isinstance(found, Mapping):
            plain = _lowered(found, 0)
            return plain if isinstance(plain, Mapping) else ANY
    return ANY if any(look(body, keys) == "application/json" for keys in _MEDIA_TYPES) else None


def _of_format(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kind = found.get("type")
    if kind == "json_object":
        return OBJECT
    if kind != "json_schema":
        return None
    within = found.get("json_schema")
    schema = within.get("schema", ABSENT) if isinstance(within, Mapping) else found.get("schema", ABSENT)
    return schema if isinstance(schema, Mapping) else ANY


def _lowered(schema: Any, depth: int) -> Any:
    """OpenAPI's way to write a schema as JSON Schema: types in small letters, what may be null as well."""
    if depth > MAX_DEPTH:
        return ANY
    if isinstance(schema, list):
        return [_lowered(each, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, Mapping):
            made[key] = {name: _lowered(each, depth + 2) for name, each in value.items()}
        elif key == "type" and isinstance(value, str):
            made[key] = [value.lower(), "null"] if schema.get("nullable") is True else value.lower()
        elif key not in ("nullable", "enum", "default", "example"):
            made[key] = _lowered(value, depth + 1)
        elif key == "enum":
            made[key] = [*value, None] if schema.get("nullable") is True else value
    return made
