"""Structured output: an answer that must be JSON, and JSON that a schema accepts.

The validator never fetches anything, and patterns inside schemas are matched in linear time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NoReturn

import jsonschema_rs

from dataplane.config.guardrails import JsonSchema
from dataplane.errors import ConfigError
from ipp.guardrails.matches import Match


class JsonSchemaRule:
    """Kinds, each for the whole text: ``json`` = it is none, ``schema`` = the schema refuses it."""

    longest = None

    def __init__(self, parameters: JsonSchema) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(
                parameters.schema,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except (ValueError, RecursionError, jsonschema_rs.ValidationError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ConfigError(f"is no JSON Schema: {said[:200]}", path="schema") from None

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        if start >= len(text):
            return []
        try:
            value = json.loads(text, parse_constant=_no_constant)
            accepted = self._validator.is_valid(value)
        except (ValueError, RecursionError):
            return [Match(start, len(text), "json")]
        return [] if accepted else [Match(start, len(text), "schema")]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
