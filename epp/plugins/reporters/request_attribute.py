"""Tell Envoy what a request has cost, computed from the usage its response reports.

The value is an integer expression in CEL, the Common Expression Language, over the variable ``usage``; it is
set as dynamic metadata with the last answer about the response's body, where access logs, rate limits and
other filters find it. Nothing is set without a usage, when the condition does not hold, when a field that the
expression needs was not reported, and for 0.

Expressions are tried once when the configuration is loaded, so that what can never work is refused then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import cel

from dataplane.errors import ConfigError
from dataplane.headers import DESTINATION_ENDPOINT, LB_NAMESPACE
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest

MAX_ATTRIBUTES: Final = 16
MAX_EXPRESSION: Final = 1024
"""Characters of an expression."""

_SAMPLE: Final = Usage(prompt_tokens=1009, completion_tokens=211, total_tokens=1220, cached_tokens=512)


class AttributeKey(PluginParams, frozen=True):
    """Where the value is set."""

    name: str
    """Name within the namespace."""
    namespace: str = LB_NAMESPACE
    """Namespace of the dynamic metadata; Envoy must be configured to receive it."""

    def __post_init__(self) -> None:
        for field in ("name", "namespace"):
            if not getattr(self, field):
                raise ConfigError("must not be empty", path=field)
        if self.name.startswith(DESTINATION_ENDPOINT):
            raise ConfigError(f"{self.name} is set by the picker itself; choose another name", path="name")


class ReportedAttribute(PluginParams, frozen=True):
    """One value."""

    key: AttributeKey
    """Where it is set: `name`, and `namespace` (envoy.lb)."""
    expression: str
    """CEL expression over `usage` whose result is an integer."""
    condition: str = ""
    """CEL expression over `usage` that says whether the value is set; empty = always."""


class RequestAttributeReporterParams(PluginParams, frozen=True):
    """Parameters of request-attribute-reporter."""

    attributes: list[ReportedAttribute]
    """The values, each with `key`, `expression` and `condition`."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.attributes) <= MAX_ATTRIBUTES:
            count = len(self.attributes)
            raise ConfigError(f"has {count} entries; give 1 to {MAX_ATTRIBUTES}", path="attributes")
        keys = [(attribute.key.namespace, attribute.key.name) for attribute in self.attributes]
        for i, key in enumerate(keys):
            if key in keys[:i]:
                raise ConfigError(f"{key[1]} is there twice", path=f"attributes[{i}].key.name")


class _Attribute:
    """One value, ready to be computed."""

    def __init__(self, params: ReportedAttribute, path: str) -> None:
        self.namespace, self.name = params.key.namespace, params.key.name
        self._expression = _compiled(params.expression, f"{path}.expression", "an integer", _is_integer)
        self._condition = (
            _compiled(params.condition, f"{path}.condition", "true or false", _is_boolean)
            if params.condition
            else None
        )

    def value(self, variables: dict[str, Any]) -> int:
        """The value; 0 when the condition does not hold. ``KeyError`` for a field that was not reported."""
        if self._condition is not None and not self._condition.execute(variables):
            return 0
        value = self._expression.execute(variables)
        if not _is_integer(value):
            raise TypeError(f"the expression of {self.name} gives {value!r}, which is no integer")
        return int(value)


class RequestAttributeReporter:
    """Reports values computed from usage."""

    info: ClassVar = PluginInfo("request-attribute-reporter", RequestAttributeReporterParams, Stability.BETA)

    def __init__(self, name: TypedName, params: RequestAttributeReporterParams, handle: Handle) -> None:
        self.name = name
        self._attributes = [
            _Attribute(attribute, f"attributes[{i}]") for i, attribute in enumerate(params.attributes)
        ]

    def report_response(
        self, request: InferenceRequest, usage: Usage | None
    ) -> Mapping[str, Mapping[str, Any]] | None:
        """The values by namespace and name."""
        if usage is None:
            return None
        variables = _variables(usage)
        found: dict[str, dict[str, Any]] = {}
        for attribute in self._attributes:
            try:
                value = attribute.value(variables)
            except KeyError:
                continue
            if value:
                found.setdefault(attribute.namespace, {})[attribute.name] = value
        return found


def _variables(usage: Usage) -> dict[str, Any]:
    """``usage`` as expressions see it: the names of either API, and only what was reported."""
    values = {
        "prompt_tokens": usage.prompt_tokens,
        "input_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    seen: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if usage.cached_tokens is not None:
        details = {"cached_tokens": usage.cached_tokens}
        seen |= {"prompt_tokens_details": details, "input_tokens_details": details}
    return {"usage": seen}


def _compiled(text: str, path: str, wanted: str, is_wanted: Any) -> Any:
    """The expression. ``ConfigError`` for one that is no CEL, or that cannot work on any usage."""
    if len(text) > MAX_EXPRESSION:
        raise ConfigError(f"has {len(text)} characters, the most is {MAX_EXPRESSION}", path=path)
    variables = _variables(_SAMPLE)
    try:
        program = cel.compile(text)
        result = program.execute(variables)
    except KeyError as error:
        known = ", ".join(variables["usage"])
        raise ConfigError(f"there is no {error} in usage; there may be {known}", path=path) from error
    except (ArithmeticError, IndexError):
        return program  # it depends on the values
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(f"is no CEL expression over usage: {_first_line(error)}", path=path) from error
    if not is_wanted(result):
        raise ConfigError(f"gives {result!r} and not {wanted}", path=path)
    return program


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
