"""Structured output: an answer that must be JSON, and JSON that a schema accepts.

The schema is the policy's, or the one that the request itself asks for, or both hold. The validator never
fetches anything, and patterns inside schemas are matched in linear time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from dataplane.config.guardrails import JsonSchema, check_schema
from dataplane.errors import ConfigError
from ipp.guardrails.matches import Match
from ipp.guardrails.rules.asked_format import asked_schema


class JsonSchemaRule:
    """Kinds, each for the whole text.

    ``json`` = it is none, ``schema`` = a schema refuses it, ``unusable`` = the request asks for a schema that
    nobody can judge by.
    """

    longest = None

    def __init__(self, parameters: JsonSchema) -> None:
        self._validators = () if parameters.schema is None else (_validator(parameters.schema),)
        self._from_request = parameters.from_request

    def for_answer_to(self, body: Mapping[str, Any]) -> ExpectedRule | None:
        """What looks at the answer to this request instead; None = this rule does."""
        schema = asked_schema(body) if self._from_request else None
        return None if schema is None else ExpectedRule(self._validators, schema)

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        return _judged(text, start, self._validators) if self._validators else []


class ExpectedRule:
    """The same for the answer to one request, which says what it is to be. Made ready when there is one."""

    longest = None

    def __init__(self, validators: Sequence[Any], schema: Mapping[str, Any]) -> None:
        self._validators = tuple(validators)
        self._schema: Mapping[str, Any] | None = schema

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        if start >= len(text):
            return []
        schema, self._schema = self._schema, None
        if schema is not None:
            try:
                check_schema(schema)
                self._validators += (_validator(schema),)
            except ConfigError:
                self._schema = schema
                return [Match(start, len(text), "unusable")]
        return _judged(text, start, self._validators)


def _validator(schema: Mapping[str, Any]) -> Any:
    try:
        return jsonschema_rs.validator_for(
            dict(schema),
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (ValueError, RecursionError, jsonschema_rs.ValidationError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"is no JSON Schema: {said[:200]}", path="schema") from None


def _judged(text: str, start: int, validators: Sequence[Any]) -> Sequence[Match]:
    if start >= len(text):
        return []
    try:
        value = json.loads(text, parse_constant=_no_constant)
        accepted = all(validator.is_valid(value) for validator in validators)
    except (ValueError, RecursionError):
        return [Match(start, len(text), "json")]
    return [] if accepted else [Match(start, len(text), "schema")]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
