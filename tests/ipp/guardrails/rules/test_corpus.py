"""How well the rules do over labelled texts: exact counts, so that a change that finds more or less shows.

``pytest -s`` prints precision and recall of each rule, and what was missed or wrongly found. For keywords,
personal data and invisible characters each find counts, with its kind and place; for the others each text.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.architecture.tree import ROOT
from tests.support.guardrail_rules import made

FOLDER = ROOT / "tests/vectors/guardrails"
PARAMETERS: dict[str, Any] = json.loads((FOLDER / "rules.json").read_text())
FILES = {
    "keywords": "keywords",
    "pii": "pii",
    "prompt_injection": "promptInjection",
    "prompt_injection_unseen": "promptInjection",
    "unicode": "unicode",
    "topics": "topics",
    "language": "language",
}
"""Name of a file of labelled texts -> type of the rule that is to find what they say.

Nothing is tuned on the unseen ones: they say what to expect of texts that nobody has looked at.
"""
LEAST_CASES = 300


class Counts(NamedTuple):
    right: int
    wrong: int
    missed: int

    def __str__(self) -> str:
        precision = self.right / (self.right + self.wrong)
        recall = self.right / (self.right + self.missed)
        return f"precision {precision:.3f} recall {recall:.3f}"


EXPECTED = {
    "keywords": Counts(right=77, wrong=2, missed=3),
    "pii": Counts(right=93, wrong=3, missed=3),
    "prompt_injection": Counts(right=128, wrong=0, missed=8),
    "prompt_injection_unseen": Counts(right=21, wrong=2, missed=14),
    "unicode": Counts(right=21, wrong=0, missed=0),
    "topics": Counts(right=13, wrong=0, missed=0),
    "language": Counts(right=19, wrong=1, missed=0),
}


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def wanted(rule: str, case: dict[str, Any]) -> set[tuple[str, str]]:
    """What the label says, as pairs of kind and text; of whole texts the kind alone."""
    if rule == "keywords":
        return {("word", text) for text in case["finds"]}
    if rule == "promptInjection":
        return {("injection", "")} if case["injection"] else set()
    if rule == "topics":
        denied = {(f"topic {case['denied']}", "")} if case["denied"] else set()
        return denied | ({("offTopic", "")} if case["offTopic"] else set())
    if rule == "language":
        return {(f"language {case['language']}", "")} if case["language"] else set()
    return {(kind, text) for kind, text in case["finds"]}


def seen(rule: str, compiled: Any, text: str) -> set[tuple[str, str]]:
    """What the rule says, in the same way."""
    matches = compiled.find(text)
    if rule == "keywords":
        return {("word", text[match.start : match.end]) for match in matches}
    if rule == "promptInjection":
        return {("injection", "") for _ in matches}
    if rule in {"topics", "language"}:
        return {(match.kind, "") for match in matches}
    return {(match.kind, text[match.start : match.end]) for match in matches}


def compared(name: str) -> Iterator[tuple[dict[str, Any], set[tuple[str, str]], set[tuple[str, str]]]]:
    rule = FILES[name]
    compiled = made(rule, PARAMETERS[rule])
    for case in cases(name):
        yield case, wanted(rule, case), seen(rule, compiled, case["text"])


@pytest.mark.parametrize("file", FILES)
def test_precision_and_recall_are_what_they_are_known_to_be(file: str):
    right = wrong = missed = 0
    for case, expected, found in compared(file):
        right += len(expected & found)
        wrong += len(found - expected)
        missed += len(expected - found)
        for name, odd in (("wrong", found - expected), ("missed", expected - found)):
            if odd:
                sys.stdout.write(f"  {file} {name}: {sorted(odd)} in {case['text'][:80]!a}\n")
    counts = Counts(right, wrong, missed)
    sys.stdout.write(f"{file}: {counts} {tuple(counts)}\n")
    assert counts == EXPECTED[file]


def test_the_corpus_is_as_large_as_promised():
    assert sum(len(cases(name)) for name in FILES) >= LEAST_CASES


def test_a_stream_finds_in_plain_words_what_the_whole_text_shows():
    compiled = made("keywords", PARAMETERS["keywords"], streaming=True)
    beyond = {"base64", "base64 twice", "spelled in part"}
    missed = [
        case["text"]
        for case in cases("keywords")
        if case["disguise"] not in beyond
        and not wanted("keywords", case) <= seen("keywords", compiled, case["text"])
    ]
    assert missed == []
