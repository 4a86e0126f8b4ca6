"""What documents of guardrail policies may say.

A policy names the traffic it is for and lists rules. Each rule looks for one kind of thing in requests, in
answers, or in answers while they stream, and what it does is its mode:

    block   the request is refused, or the answer ends, with the rule's message
    mask    what was found is replaced, and the rest goes on; a limit or a forced field is put in its place
    flag    nothing changes; the verdict is counted and told

Parameters depend on the type and are judged with it, all mistakes at once. Patterns are RE2's: what they find
takes linear time, whatever the text.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import re2

from dataplane.config.decode import decode_struct
from dataplane.config.problems import raise_any
from dataplane.config.values import (
    Count,
    DurationText,
    ModelName,
    ModelPattern,
    Name,
    check_patterns,
    seconds,
)
from dataplane.errors import ConfigError

API_VERSION: Final = "pointsman.dev/v1"
KIND: Final = "GuardrailPolicy"

MAX_RULES: Final = 64
MAX_WORDS: Final = 10_000
MAX_PATTERNS: Final = 500
MAX_PATTERN_MEMORY: Final = 1 << 20
"""Bytes that one compiled pattern may take."""
MAX_DEADLINE_S: Final = 30.0
MAX_SCHEMA_PARTS: Final = 10_000
"""Values in a JSON Schema, those inside others included."""

Stage = Literal["request", "response", "stream"]
Mode = Literal["block", "mask", "flag"]
Failure = Literal["open", "closed"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Language = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,3}$(?!\n)")]
NamePattern = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^([a-z0-9][-a-z0-9.]*)?\*?$(?!\n)")]
"""A name, or the beginning of names and then ``*``."""
RuleName = Annotated[str, msgspec.Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$(?!\n)")]
Entity = Literal["email", "phone", "iban", "card", "nationalId", "ip", "secret"]
Invisible = Literal["invisible", "bidirectional", "control", "tag"]


class _Section(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """A part of a document."""


class Keywords(_Section, frozen=True, kw_only=True):
    """Words or phrases."""

    words: Annotated[list[Word], msgspec.Meta(min_length=1, max_length=MAX_WORDS)]
    case_sensitive: bool = False
    whole_words: bool = True
    """Whether a word inside a longer one does not count."""


class Patterns(_Section, frozen=True, kw_only=True):
    """Regular expressions of RE2."""

    patterns: Annotated[list[Pattern], msgspec.Meta(min_length=1, max_length=MAX_PATTERNS)]
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        _check_each(self.patterns, finds_text=True)


class Pii(_Section, frozen=True, kw_only=True):
    """What identifies a person, and secrets."""

    entities: Annotated[list[Entity], msgspec.Meta(min_length=1)]
    restore: bool = True
    """Masked: whether the caller gets the original back where the answer repeats the placeholder."""

    def __post_init__(self) -> None:
        if len(set(self.entities)) < len(self.entities):
            raise ConfigError("names an entity twice", path="entities")


class PromptInjection(_Section, frozen=True, kw_only=True):
    """Text that tries to give the model other orders."""

    threshold: Share = 0.8
    """The score from which on it counts, 0 to 1."""


class Unicode(_Section, frozen=True, kw_only=True):
    """Characters that people do not see and models do."""

    classes: Annotated[list[Invisible], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["invisible", "bidirectional", "tag"]
    )


class MaxTokens(_Section, frozen=True, kw_only=True):
    """A number of tokens: of the prompt, or those that may be asked for."""

    tokens: Count


class Range(_Section, frozen=True, kw_only=True):
    """Least and greatest value."""

    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise ConfigError("limits nothing; give min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ConfigError("is greater than max", path="min")

    def holds(self, value: Any) -> bool:
        """Whether a value is a number in it."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


class Parameters(_Section, frozen=True, kw_only=True):
    """Fields of the request's body, all of those that are given."""

    allowed_models: list[ModelPattern] | None = None
    allowed_tools: list[Word] | None = None
    """Names of tools; an empty list allows none."""
    ranges: dict[Word, Range] = {}
    """Field -> range, such as ``temperature: {max: 1}``."""
    forbidden: list[Word] = []
    """Fields a request may not have."""
    forced: dict[Word, Any] = {}
    """Field -> the value it has whatever the client sends; goes with mode mask."""

    def __post_init__(self) -> None:
        check_patterns(self.allowed_models, "allowedModels")
        if self.allowed_models is self.allowed_tools is None and not (
            self.ranges or self.forbidden or self.forced
        ):
            raise ConfigError("says nothing about any field")
        for field, value in self.forced.items():
            span = self.ranges.get(field)
            if field in self.forbidden:
                raise ConfigError("is forbidden as well", path=f"forced.{field}")
            if span is not None and not span.holds(value):
                raise ConfigError("is outside its range", path=f"forced.{field}")


class Languages(_Section, frozen=True, kw_only=True):
    """Languages that text may be in."""

    allowed: Annotated[list[Language], msgspec.Meta(min_length=1)]
    """ISO 639 codes: ``en``, ``de``."""
    min_characters: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 20
    """Shorter text is not judged."""


class Topic(_Section, frozen=True, kw_only=True):
    """A subject, by the words that tell it."""

    name: RuleName
    words: Annotated[list[Word], msgspec.Meta(min_length=1, max_length=MAX_WORDS)]
    at_least: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """How many different words of it a text has that is about it."""


class Topics(_Section, frozen=True, kw_only=True):
    """Subjects that text may not be about, and subjects of which it must be about one."""

    denied: list[Topic] = []
    allowed: list[Topic] = []
    min_characters: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 20
    """Shorter text need not be about an allowed subject."""

    def __post_init__(self) -> None:
        topics = [*self.denied, *self.allowed]
        if not topics:
            raise ConfigError("names no topic; give denied or allowed")
        if len({topic.name for topic in topics}) < len(topics):
            raise ConfigError("has two topics of one name")
        if sum(len(topic.words) for topic in topics) > MAX_WORDS:
            raise ConfigError(f"has more than {MAX_WORDS} words in all its topics")
        for name, group in (("denied", self.denied), ("allowed", self.allowed)):
            for index, topic in enumerate(group):
                if topic.at_least > len(topic.words):
                    raise ConfigError("is more than there are words", path=f"{name}[{index}].atLeast")


class AllowPatterns(_Section, frozen=True, kw_only=True):
    """Regular expressions of RE2, one of which a text must match from its beginning to its end."""

    patterns: Annotated[list[Pattern], msgspec.Meta(min_length=1, max_length=MAX_PATTERNS)]
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        _check_each(self.patterns, finds_text=False)


class JsonSchema(_Section, frozen=True, kw_only=True):
    """What an answer's text must be: JSON that a schema accepts."""

    schema: dict[str, Any] | None = None
    """JSON Schema; references stay inside the document."""
    from_request: bool = False
    """Whether the answer must be what the request itself asks for with ``response_format`` and its like;
    requests that ask for no JSON get what they get."""

    def __post_init__(self) -> None:
        if self.schema is not None:
            check_schema(self.schema)
        elif not self.from_request:
            raise ConfigError("says of no schema; give schema or fromRequest: true")


class Media(_Section, frozen=True, kw_only=True):
    """Images, sound, video and files in a request."""

    types: (
        list[Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[a-z]+/([a-z0-9.+-]+|\*)$(?!\n)")]] | None
    ) = None
    """Media types that may be sent: ``image/png``, ``image/*``; None = all, an empty list = none at all."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Of one item, decoded."""
    max_items: Annotated[int, msgspec.Meta(ge=0)] | None = None
    remote: bool = True
    """Whether an item may be named by a URL or by an upload's identifier, which nobody here can look at."""
    hosts: (
        list[Annotated[str, msgspec.Meta(max_length=253, pattern=r"^(\*\.)?[a-z0-9.-]+$(?!\n)")]] | None
    ) = None
    """Hosts that URLs may name: ``images.example.com``, ``*.example.com``; None = all."""

    def __post_init__(self) -> None:
        limits = (x is not None for x in (self.types, self.max_bytes, self.max_items, self.hosts))
        if self.remote and not any(limits):
            raise ConfigError("limits nothing; give types, maxBytes, maxItems, hosts or remote: false")
        if not self.remote and self.hosts:
            raise ConfigError("names hosts although remote is false", path="hosts")


class Webhook(_Section, frozen=True, kw_only=True):
    """Somebody else's verdict, asked for over HTTP."""

    url: Annotated[str, msgspec.Meta(max_length=2048)]
    timeout: DurationText = "1s"
    failure_policy: Failure = "closed"
    """What a verdict that does not come in time counts as: ``open`` lets the text pass."""

    def __post_init__(self) -> None:
        _check_url(self.url)
        _check_deadline(self.timeout)


class Judge(_Section, frozen=True, kw_only=True):
    """A model's verdict, asked for in one of the pools."""

    pool: Name
    model: ModelName
    instruction: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    """What the model is to judge."""
    threshold: Share = 0.5
    timeout: DurationText = "2s"
    failure_policy: Failure = "closed"

    def __post_init__(self) -> None:
        _check_deadline(self.timeout)


class RuleType(msgspec.Struct, frozen=True):
    """What rules of a type may be."""

    parameters: type[_Section]
    stages: tuple[Stage, ...]
    modes: tuple[Mode, ...] = ("block", "flag")


_TEXT: Final[tuple[Stage, ...]] = ("request", "response", "stream")
_REQUEST: Final[tuple[Stage, ...]] = ("request",)
_WHOLE: Final[tuple[Stage, ...]] = ("request", "response")
_ALL: Final[tuple[Mode, ...]] = ("block", "mask", "flag")
RULE_TYPES: Final[dict[str, RuleType]] = {
    "keywords": RuleType(Keywords, _TEXT, _ALL),
    "patterns": RuleType(Patterns, _TEXT, _ALL),
    "pii": RuleType(Pii, _TEXT, _ALL),
    "promptInjection": RuleType(PromptInjection, _REQUEST),
    "unicode": RuleType(Unicode, _TEXT, _ALL),
    "maxInputTokens": RuleType(MaxTokens, _REQUEST),
    "maxOutputTokens": RuleType(MaxTokens, _REQUEST, _ALL),
    "parameters": RuleType(Parameters, _REQUEST, _ALL),
    "language": RuleType(Languages, _WHOLE),
    "topics": RuleType(Topics, _WHOLE),
    "allowPatterns": RuleType(AllowPatterns, _WHOLE),
    "jsonSchema": RuleType(JsonSchema, ("response",)),
    "media": RuleType(Media, _REQUEST),
    "webhook": RuleType(Webhook, _TEXT),
    "judge": RuleType(Judge, _TEXT),
}
"""By the name rules have for their type."""


class Rule(_Section, frozen=True, kw_only=True):
    """One thing to look for, and what to do about it."""

    name: RuleName
    type: Literal[
        "keywords",
        "patterns",
        "pii",
        "promptInjection",
        "unicode",
        "maxInputTokens",
        "maxOutputTokens",
        "parameters",
        "language",
        "topics",
        "allowPatterns",
        "jsonSchema",
        "media",
        "webhook",
        "judge",
    ]
    mode: Mode = "block"
    stages: Annotated[list[Stage], msgspec.Meta(min_length=1)] | None = None
    """Where it looks; None = in requests."""
    parameters: dict[str, Any] = {}
    """Those of the type."""
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """What the client is told; empty = a sentence that names the rule."""

    def __post_init__(self) -> None:
        known = RULE_TYPES[self.type]
        stages = self.stages or ["request"]
        if len(set(stages)) < len(stages):
            raise ConfigError("names a stage twice", path="stages")
        if wrong := [stage for stage in stages if stage not in known.stages]:
            raise ConfigError(
                f"{wrong[0]} is no stage of {self.type}; use {', '.join(known.stages)}", path="stages"
            )
        if self.mode not in known.modes:
            raise ConfigError(
                f"{self.mode} is no mode of {self.type}; use {', '.join(known.modes)}", path="mode"
            )
        if self.parameters.get("forced") and self.mode != "mask":
            raise ConfigError("goes with mode mask", path="parameters.forced")


class GuardrailPolicySpec(_Section, frozen=True, kw_only=True):
    """``GuardrailPolicy.spec``: rules for traffic of these tenants to these models in these pools.

    Of tenants, models and pools a list that is left out means all. Every policy that matches holds; policies
    with a higher priority come first, then those whose names come first, and of rules with one name in
    several policies the first one alone.
    """

    enabled: bool = True
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    tenants: list[NamePattern] | None = None
    models: list[ModelPattern] | None = None
    pools: list[NamePattern] | None = None
    streams: Literal["window", "hold"] = "window"
    """What rules of stage ``response`` do about answers that stream. ``window``: nothing, rules of stage
    ``stream`` look at those while they pass. ``hold``: such an answer is held back until it is whole, and
    they judge it like any other."""
    rules: list[Rule]

    def __post_init__(self) -> None:
        self._check_streams()
        for path, patterns in (("tenants", self.tenants), ("models", self.models), ("pools", self.pools)):
            check_patterns(patterns, path, path.removesuffix("s"))
        for path, names in (("tenants", self.tenants), ("pools", self.pools)):
            if "" in (names or ()):
                raise ConfigError("holds an empty name", path=path)
        if not 0 < len(self.rules) <= MAX_RULES:
            raise ConfigError(f"must list 1 to {MAX_RULES} rules", path="rules")
        places: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            if (first := places.setdefault(rule.name, index)) != index:
                raise ConfigError(
                    f"rules[{first}] is called '{rule.name}' already", path=f"rules[{index}].name"
                )

    def _check_streams(self) -> None:
        if self.streams != "hold":
            return
        whole = [
            (index, rule)
            for index, rule in enumerate(self.rules)
            if rule.stages and "response" in rule.stages and "stream" not in rule.stages
        ]
        if not whole:
            raise ConfigError("holds streams for nothing: no rule is for whole answers alone", path="streams")
        for index, rule in whole:
            if rule.mode == "mask":
                raise ConfigError(
                    "cannot mask streams that are held; add stage stream, or choose another mode",
                    path=f"rules[{index}].mode",
                )


def judge_parameters(spec: GuardrailPolicySpec, path: str, problems: list[ConfigError]) -> list[_Section]:
    """The parameters of each rule, decoded by its type; mistakes go to ``problems``, all of them."""
    found = (
        rule_parameters(rule, f"{path}.rules[{index}]", problems) for index, rule in enumerate(spec.rules)
    )
    return [parameters for parameters in found if parameters is not None]


def rule_parameters(rule: Rule, path: str, problems: list[ConfigError]) -> _Section | None:
    """The parameters of one rule; None when they are unusable."""
    raw: Mapping[str, Any] = rule.parameters
    return decode_struct(dict(raw), RULE_TYPES[rule.type].parameters, f"{path}.parameters", problems)


def _check_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        usable = (
            parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("is no http or https URL", path="url")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("holds a user or password; documents hold no secrets", path="url")


def _check_deadline(text: str) -> None:
    found = seconds(text, "timeout")
    if found is not None and found > MAX_DEADLINE_S:
        raise ConfigError(f"is longer than {MAX_DEADLINE_S:g}s, and the client waits", path="timeout")


def _check_each(patterns: Sequence[str], *, finds_text: bool) -> None:
    """``ConfigErrors`` with all that are none, or that find the empty text where they have to find some."""
    problems: list[ConfigError] = []
    for index, pattern in enumerate(patterns):
        path = f"patterns[{index}]"
        try:
            if _compiled(pattern, path).search("") is not None and finds_text:
                problems.append(ConfigError("finds the empty text, and so everything", path=path))
        except ConfigError as error:
            problems.append(error)
    raise_any(problems)


def _compiled(pattern: str, path: str) -> Any:
    options = re2.Options()
    options.log_errors, options.max_mem = False, MAX_PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise ConfigError(f"is no pattern of RE2: {_reason(error)}", path=path) from None


def check_schema(schema: Mapping[str, Any]) -> None:
    """``ConfigError`` unless references stay inside, and there is an end to it."""
    waiting: list[tuple[str, Any]] = [("schema", schema)]
    for seen, (path, item) in enumerate(waiting):
        if seen >= MAX_SCHEMA_PARTS:
            raise ConfigError(f"has more than {MAX_SCHEMA_PARTS} parts", path="schema")
        if isinstance(item, dict):
            for key, value in item.items():
                if key in {"$ref", "$dynamicRef"} and isinstance(value, str) and not value.startswith("#"):
                    raise ConfigError(
                        "leaves the document; put what it names under $defs", path=f"{path}.{key}"
                    )
                waiting.append((f"{path}.{key}", value))
        elif isinstance(item, list):
            waiting.extend((f"{path}[{index}]", value) for index, value in enumerate(item))


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
