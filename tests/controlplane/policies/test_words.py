"""Rules in plain words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.policies.pages.words import sentence
from dataplane.config.guardrails import RULE_TYPES, Rule

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "keywords": (
        {"words": ["a", "b", "c", "d", "e", "f", "g"], "wholeWords": False},
        "Looks for 7 words, inside longer words as well: “a”, “b”, “c”, “d”, “e”, “f” and 1 more.",
    ),
    "patterns": ({"patterns": ["zebra-[0-9]{1,9}"]}, "Looks for 1 pattern: “zebra-[0-9]{1,9}”."),
    "pii": ({"entities": ["email", "iban", "card"]}, "Looks for e-mail addresses, IBANs and payment cards."),
    "promptInjection": (
        {"threshold": 0.7},
        "Looks for text that gives the model other orders, from a score of 0.7 on.",
    ),
    "unicode": ({"classes": ["tag"]}, "Looks for tag characters."),
    "maxInputTokens": ({"tokens": 4000}, "Lets prompts of at most 4,000 tokens pass."),
    "maxOutputTokens": ({"tokens": 1}, "Lets a request ask for at most 1 token."),
    "parameters": (
        {
            "allowedModels": ["llama-*"],
            "allowedTools": [],
            "ranges": {"temperature": {"max": 1}, "top_p": {"min": 0.1, "max": 0.9}},
            "forbidden": ["seed"],
        },
        (
            "Allows models “llama-*”; no tools; temperature at most 1; top_p from 0.1 to 0.9. "
            "Forbids the fields “seed”."
        ),
    ),
    "language": (
        {"allowed": ["en", "de"]},
        "Lets text pass that is in “en”, “de”; text of fewer than 20 characters is not judged.",
    ),
    "topics": (
        {"denied": [{"name": "arms", "words": ["gun"]}], "allowed": [{"name": "trains", "words": ["train"]}]},
        "Looks for the topics “arms”. Lets only text about “trains” pass.",
    ),
    "allowPatterns": (
        {"patterns": ["[0-9]+"]},
        "Lets text pass that is, from beginning to end, of 1 pattern: “[0-9]+”.",
    ),
    "jsonSchema": (
        {"schema": {"title": "Ticket", "type": "object"}},
        "Answers must be JSON that its schema “Ticket” accepts.",
    ),
    "media": (
        {"types": ["image/*"], "maxBytes": 1000, "remote": False},
        (
            "Lets images and files pass of the types “image/*”, of at most 1,000 bytes each, "
            "sent along, not named by a URL."
        ),
    ),
    "webhook": (
        {"url": "https://judge.example:8443/v?token=x", "failurePolicy": "open"},
        "Asks judge.example:8443; waits at most 1s; without an answer the text passes.",
    ),
    "judge": (
        {"pool": "safe", "model": "guard", "instruction": "judge"},
        (
            "Asks the model guard in the pool safe, which judges from 0.5 on; waits at most 2s; "
            "without an answer it counts as found."
        ),
    ),
}


@pytest.mark.parametrize("kind", RULE_TYPES)
def test_every_type_of_rule_is_said_in_words(kind: str) -> None:
    parameters, words = CASES[kind]
    stage = RULE_TYPES[kind].stages[0]
    rule = msgspec.convert({"name": "r", "type": kind, "stages": [stage], "parameters": parameters}, Rule)
    said = sentence(rule)
    then = "The request is refused." if stage == "request" else "The answer is withheld."
    assert (said.looks, said.then) == (words, then)


@pytest.mark.parametrize(
    ("rule", "then"),
    [
        ({"type": "pii", "parameters": {"entities": ["email"]}, "mode": "flag"}, "Nothing changes; it is"),
        ({"type": "pii", "parameters": {"entities": ["email"]}, "mode": "mask"}, "Placeholders are put in"),
        ({"type": "unicode", "mode": "mask"}, "They are left out."),
        ({"type": "maxOutputTokens", "parameters": {"tokens": 9}, "mode": "mask"}, "What is allowed is put"),
        ({"type": "keywords", "parameters": {"words": ["a"]}, "mode": "mask"}, "It is replaced by ***."),
        (
            {"type": "keywords", "parameters": {"words": ["a"]}, "stages": ["request", "stream"]},
            "The request is refused and the stream ends.",
        ),
    ],
)
def test_what_follows_is_said_as_well(rule: dict[str, Any], then: str) -> None:
    assert sentence(msgspec.convert({"name": "r", **rule}, Rule)).then.startswith(then)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        (["response"], ["answers (streamed ones are held back until they are whole)"]),
        (["response", "stream"], ["answers", "streamed answers"]),
        (["request"], ["requests"]),
    ],
)
def test_answers_that_are_held_back_are_said_so(stages: list[str], words: list[str]) -> None:
    said = {"name": "r", "type": "keywords", "stages": stages, "parameters": {"words": ["a"]}}
    assert sentence(msgspec.convert(said, Rule), holds=True).stages == words


def test_a_rule_whose_parameters_nobody_understands_any_more_is_said_so() -> None:
    rule = msgspec.convert({"name": "r", "type": "pii", "parameters": {"entity": "x"}}, Rule)
    assert sentence(rule).looks == "Has parameters that cannot be read."
