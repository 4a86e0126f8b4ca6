"""The types of rules: from a document's rule to what looks at texts and bodies.

What asks somebody else (``webhook``, ``judge``) is not made here, since it is neither pure nor quick.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

import msgspec

from dataplane.config.guardrails import Rule
from ipp.guardrails.matches import BodyRule, TextRule

PureRule: TypeAlias = TextRule | BodyRule

_MODULES: Final = {
    "keywords": ("keywords", "KeywordRule"),
    "patterns": ("patterns", "PatternRule"),
    "pii": ("pii", "PiiRule"),
    "unicode": ("invisible", "UnicodeRule"),
    "promptInjection": ("injection", "InjectionRule"),
    "topics": ("topics", "TopicRule"),
    "language": ("language", "LanguageRule"),
    "allowPatterns": ("allow_patterns", "AllowPatternRule"),
    "jsonSchema": ("json_schema", "JsonSchemaRule"),
    "maxInputTokens": ("tokens", "MaxInputTokensRule"),
    "maxOutputTokens": ("tokens", "MaxOutputTokensRule"),
    "parameters": ("parameters", "ParameterRule"),
    "media": ("media", "MediaRule"),
}
"""Type of a rule -> module of this package, loaded when a policy has such a rule, and class."""
_STREAMING: Final = frozenset({"keywords", "patterns", "pii", "unicode"})


def is_pure(rule: Rule) -> bool:
    """Whether ``compile_rule`` makes rules of this type."""
    return rule.type in _MODULES


def compile_rule(rule: Rule, parameters: msgspec.Struct, *, streaming: bool | None = None) -> PureRule:
    """What looks for a rule's matches; ``parameters`` are those that ``rule_parameters`` read.

    ``streaming``: whether it must do with what a stream holds back at a time; None = when the rule has the
    stage ``stream``. Rules that need not also look into base64 and through any number of invisible
    characters, so requests are best looked at by one that is made with ``streaming=False``. Answers,
    streamed or not, are looked at by one and the same, so that both give the same.

    Mistakes that only show here raise a ``ConfigError`` whose path is relative to the parameters:
    ``patterns[3]``.
    """
    module, name = _MODULES[rule.type]
    make: Callable[..., Any] = getattr(import_module(f"ipp.guardrails.rules.{module}"), name)
    if rule.type in _STREAMING:
        held = "stream" in (rule.stages or ()) if streaming is None else streaming
        made: PureRule = make(parameters, streaming=held)
    elif rule.type == "maxOutputTokens":
        made = make(parameters, masking=rule.mode == "mask")
    else:
        made = make(parameters)
    return made
