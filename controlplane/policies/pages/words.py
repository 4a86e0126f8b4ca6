"""A policy's rules in plain words, for whoever does not read documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from dataplane.config.guardrails import GuardrailPolicySpec, Rule, rule_parameters

SHOWN: Final = 6
"""Words, patterns or fields that a sentence lists."""
MAX_WORD: Final = 60
_ENTITIES: Final = {
    "email": "e-mail addresses",
    "phone": "phone numbers",
    "iban": "IBANs",
    "card": "payment cards",
    "nationalId": "national identity numbers",
    "ip": "IP addresses",
    "secret": "keys and other secrets",
}
_INVISIBLE: Final = {
    "invisible": "invisible characters",
    "bidirectional": "characters that turn the direction of writing",
    "control": "control characters",
    "tag": "tag characters",
}
_STAGES: Final = {"request": "requests", "response": "answers", "stream": "streamed answers"}
_HELD: Final = "answers (streamed ones are held back until they are whole)"
_ENDS: Final = {
    "request": "the request is refused",
    "response": "the answer is withheld",
    "stream": "the stream ends",
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One rule."""

    name: str
    type: str
    mode: str
    stages: list[str]
    """In words."""
    looks: str
    """What it looks for."""
    then: str
    """What follows."""
    message: str
    """What the client is told; empty = a sentence that names the rule."""


def sentences(spec: GuardrailPolicySpec) -> list[Sentence]:
    """Each rule of a policy."""
    return [sentence(rule, holds=spec.streams == "hold") for rule in spec.rules]


def sentence(rule: Rule, *, holds: bool = False) -> Sentence:
    """One rule; parameters that nobody understands any more are left out.

    ``holds``: whether its policy holds streamed answers back for rules that judge whole ones.
    """
    stages = rule.stages or ["request"]
    parameters = rule_parameters(rule, "", [])
    return Sentence(
        name=rule.name,
        type=rule.type,
        mode=rule.mode,
        stages=[
            _HELD if holds and stage == "response" and "stream" not in stages else _STAGES[stage]
            for stage in stages
        ],
        looks="Has parameters that cannot be read." if parameters is None else _LOOKS[rule.type](parameters),
        then=_then(rule, stages, parameters),
        message=rule.message,
    )


def _then(rule: Rule, stages: Sequence[str], parameters: Any) -> str:
    if rule.mode == "flag":
        return "Nothing changes; it is counted and told."
    if rule.mode == "block":
        return f"{_capital(_and([_ENDS[stage] for stage in stages]))}."
    if rule.type in ("maxOutputTokens", "parameters"):
        return "What is allowed is put in its place."
    if rule.type == "unicode":
        return "They are left out."
    if rule.type == "pii":
        back = "; the caller gets the originals back where the answer repeats them"
        return f"Placeholders are put in their place{back if parameters and parameters.restore else ''}."
    return "It is replaced by ***."


def _listed(items: Sequence[str]) -> str:
    """The first of them, quoted, and how many more there are."""
    shown = [f"“{item[:MAX_WORD]}{'…' if len(item) > MAX_WORD else ''}”" for item in items[:SHOWN]]
    more = len(items) - len(shown)
    return ", ".join(shown) if not more else f"{', '.join(shown)} and {more:,} more"


def _and(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _keywords(said: Any) -> str:
    how = "" if said.whole_words else ", inside longer words as well"
    case = " as they are written" if said.case_sensitive else ""
    return f"Looks for {_count(len(said.words), 'word')}{case}{how}: {_listed(said.words)}."


def _patterns(said: Any) -> str:
    return f"Looks for {_count(len(said.patterns), 'pattern')}: {_listed(said.patterns)}."


def _pii(said: Any) -> str:
    return f"Looks for {_and([_ENTITIES[entity] for entity in said.entities])}."


def _injection(said: Any) -> str:
    return f"Looks for text that gives the model other orders, from a score of {said.threshold:g} on."


def _unicode(said: Any) -> str:
    return f"Looks for {_and([_INVISIBLE[kind] for kind in said.classes])}."


def _max_input(said: Any) -> str:
    return f"Lets prompts of at most {_count(said.tokens, 'token')} pass."


def _max_output(said: Any) -> str:
    return f"Lets a request ask for at most {_count(said.tokens, 'token')}."


def _range(name: str, bounds: Any) -> str:
    if bounds.min is None:
        return f"{name} at most {bounds.max:g}"
    if bounds.max is None:
        return f"{name} at least {bounds.min:g}"
    return f"{name} from {bounds.min:g} to {bounds.max:g}"


def _parameters(said: Any) -> str:
    parts = []
    if said.allowed_models is not None:
        parts.append(f"models {_listed(said.allowed_models)}")
    if said.allowed_tools is not None:
        parts.append(f"tools {_listed(said.allowed_tools)}" if said.allowed_tools else "no tools")
    parts += [_range(name, bounds) for name, bounds in list(said.ranges.items())[:SHOWN]]
    found = [f"Allows {'; '.join(parts)}."] if parts else []
    if said.forbidden:
        found.append(f"Forbids the fields {_listed(said.forbidden)}.")
    if said.forced:
        forced = ", ".join(
            f"{name} = {str(value)[:MAX_WORD]}" for name, value in list(said.forced.items())[:SHOWN]
        )
        found.append(f"Sets {forced}.")
    return " ".join(found)


def _language(said: Any) -> str:
    shorter = f"text of fewer than {said.min_characters} characters is not judged"
    return f"Lets text pass that is in {_listed(said.allowed)}; {shorter}."


def _topics(said: Any) -> str:
    denied = f"Looks for the topics {_listed([topic.name for topic in said.denied])}." if said.denied else ""
    names = [topic.name for topic in said.allowed]
    allowed = f"Lets only text about {_listed(names)} pass." if said.allowed else ""
    return " ".join(part for part in (denied, allowed) if part)


def _allow(said: Any) -> str:
    number = _count(len(said.patterns), "pattern")
    which = number if len(said.patterns) == 1 else f"one of {number}"
    return f"Lets text pass that is, from beginning to end, of {which}: {_listed(said.patterns)}."


def _schema(said: Any) -> str:
    title = said.schema.get("title")
    called = f" {_listed([title])}" if isinstance(title, str) else ""
    return f"Answers must be JSON that its schema{called} accepts."


def _media(said: Any) -> str:
    parts = []
    if said.types is not None:
        parts.append(f"of the types {_listed(said.types)}" if said.types else "of no type at all")
    if said.max_bytes is not None:
        parts.append(f"of at most {said.max_bytes:,} bytes each")
    if said.max_items is not None:
        parts.append(f"at most {said.max_items}")
    if not said.remote:
        parts.append("sent along, not named by a URL")
    if said.hosts is not None:
        parts.append(f"from the hosts {_listed(said.hosts)}")
    return f"Lets images and files pass {', '.join(parts)}."


def _failure(said: Any) -> str:
    counts = "the text passes" if said.failure_policy == "open" else "it counts as found"
    return f"waits at most {said.timeout}; without an answer {counts}."


def _webhook(said: Any) -> str:
    return f"Asks {urlsplit(said.url).netloc}; {_failure(said)}"


def _judge(said: Any) -> str:
    whom = f"the model {said.model} in the pool {said.pool}"
    return f"Asks {whom}, which judges from {said.threshold:g} on; {_failure(said)}"


_LOOKS: Final[dict[str, Callable[[Any], str]]] = {
    "keywords": _keywords,
    "patterns": _patterns,
    "pii": _pii,
    "promptInjection": _injection,
    "unicode": _unicode,
    "maxInputTokens": _max_input,
    "maxOutputTokens": _max_output,
    "parameters": _parameters,
    "language": _language,
    "topics": _topics,
    "allowPatterns": _allow,
    "jsonSchema": _schema,
    "media": _media,
    "webhook": _webhook,
    "judge": _judge,
}
"""By type of rule."""
