"""Fields of the request's body: which models and tools it may name, which values, which fields at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dataplane.config.guardrails import Parameters, Range
from ipp.guardrails.matches import REMOVED, BodyMatch, Change, Facts
from ipp.guardrails.rules.fields import ABSENT, is_number, look, model_in_path, places, usual_place

_CHOICES: Final = ("auto", "any", "none", "required", "allowed_tools")
"""Types of choices that name no tool."""
_CALLABLE: Final = (
    ("toolConfig", "functionCallingConfig", "allowedFunctionNames"),
    ("tool_config", "function_calling_config", "allowed_function_names"),
)
"""Names of tools that Gemini is to call."""
_DECLARATIONS: Final = ("functionDeclarations", "function_declarations")


class ParameterRule:
    """Kinds: ``model``, ``tool``, ``outOfRange``, ``type``, ``forbidden``, ``forced``."""

    def __init__(self, parameters: Parameters) -> None:
        self._models = parameters.allowed_models
        self._tools = None if parameters.allowed_tools is None else frozenset(parameters.allowed_tools)
        self._ranges = [(keys, span) for field, span in parameters.ranges.items() for keys in places(field)]
        self._forbidden = [keys for field in parameters.forbidden for keys in places(field)]
        self._forced = list(parameters.forced.items())

    def check(self, body: Mapping[str, Any], facts: Facts) -> Sequence[BodyMatch]:
        found: list[BodyMatch] = []
        if self._models is not None and not _allow(self._models, body, facts):
            found.append(BodyMatch("model", "model"))
        if self._tools is not None:
            found += self._check_tools(body, self._tools)
        for keys, span in self._ranges:
            found += _check_range(keys, look(body, keys), span)
        for keys in self._forbidden:
            if look(body, keys) is not ABSENT:
                found.append(BodyMatch(".".join(keys), "forbidden", (Change(keys, REMOVED),)))
        for field, value in self._forced:
            found += _check_forced(body, field, value)
        return found

    def _check_tools(self, body: Mapping[str, Any], allowed: frozenset[str]) -> Iterator[BodyMatch]:
        for field in ("tools", "functions", "mcp_servers"):
            tools = body.get(field)
            if not isinstance(tools, list):
                continue
            kept = [tool for tool in tools if all(name in allowed for _, name in _names(tool))]
            change = Change((field,), kept or REMOVED)
            for index, tool in enumerate(tools):
                for inner, name in _names(tool):
                    if name not in allowed:
                        yield BodyMatch(f"{field}[{index}]{inner}", "tool", (change,))
        for field in ("tool_choice", "function_call"):
            choice = body.get(field)
            if isinstance(choice, Mapping):
                for inner, name in _names(choice):
                    if name not in allowed and choice.get("type") not in _CHOICES:
                        yield BodyMatch(f"{field}{inner}", "tool", (Change((field,), REMOVED),))
        for keys in _CALLABLE:
            names = look(body, keys)
            if isinstance(names, list) and not allowed.issuperset(map(str, names)):
                kept = [name for name in names if name in allowed]
                yield BodyMatch(".".join(keys), "tool", (Change(keys, kept or REMOVED),))


def _check_forced(body: Mapping[str, Any], field: str, value: Any) -> Iterator[BodyMatch]:
    """The field where its API has it, and wherever else the request says something else."""
    usual = usual_place(field, body)
    for keys in (usual, *(keys for keys in places(field) if keys != usual)):
        given = look(body, keys)
        if not _same(given, value) and (keys == usual or given is not ABSENT):
            yield BodyMatch(".".join(keys), "forced", (Change(keys, value),))


def _names(tool: Any) -> list[tuple[str, str]]:
    """Where a tool has its names, and the names; one without is known by its type, and else by nothing."""
    if not isinstance(tool, Mapping):
        return [("", "")]
    for section in _DECLARATIONS:
        declared = tool.get(section)
        if isinstance(declared, list):
            return [
                (f".{section}[{index}].name", str(item.get("name", "")) if isinstance(item, Mapping) else "")
                for index, item in enumerate(declared)
            ]
    function = tool.get("function")
    if isinstance(function, Mapping):
        return [(".function.name", str(function.get("name", "")))]
    if "name" in tool:
        return [(".name", str(tool["name"]))]
    if "type" in tool:
        return [(".type", str(tool["type"]))]
    return [(f".{key}", str(key)) for key in tool] or [("", "")]


def _allow(patterns: Sequence[str], body: Mapping[str, Any], facts: Facts) -> bool:
    """Whether the request names a model, and none that is not allowed; servers differ in where they look."""
    named = [] if body.get("model") is None else [body["model"]]
    named += [name for name in (model_in_path(facts.path), facts.rewrite) if name]
    return bool(named) and all(isinstance(model, str) and _allows(patterns, model) for model in named)


def _allows(patterns: Sequence[str], model: str) -> bool:
    return any(
        model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern for pattern in patterns
    )


def _check_range(keys: tuple[str, ...], value: Any, span: Range) -> Iterator[BodyMatch]:
    if value is ABSENT or value is None:
        return
    path = ".".join(keys)
    least, most = span.min, span.max
    if not is_number(value):
        limit = most if most is not None else least
        yield BodyMatch(path, "type", (Change(keys, _plain(limit)),))
    elif most is not None and not value <= most:
        yield BodyMatch(path, "outOfRange", (Change(keys, _plain(most)),))
    elif least is not None and not value >= least:
        yield BodyMatch(path, "outOfRange", (Change(keys, _plain(least)),))


def _plain(limit: float | None) -> float | int | None:
    """Whole limits as whole numbers: some fields take no others."""
    return int(limit) if limit is not None and limit.is_integer() else limit


def _same(given: Any, wanted: Any) -> bool:
    """JSON's equality: true is not 1, and 1 is 1.0."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_same, given, wanted))
    if isinstance(given, dict) and isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(_same(given[key], wanted[key]) for key in given)
    return bool(given == wanted)
