"""Policies tried on texts and bodies: those that are here, and those that are not yet. Nothing is kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from controlplane.core.errors import InvalidError
from controlplane.core.roles import Action, Actor, require
from controlplane.policies.models import GuardrailPolicy
from controlplane.policies.services import POLICY, in_force
from dataplane.config.decode import decode_struct
from dataplane.config.document_files import PlacedDocument
from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError, did_you_mean
from ipp.guardrails.policies import Policies
from ipp.guardrails.trial import Trial, TrialResult, run_compiled
from ipp.guardrails.verdicts import Action as Outcome
from ipp.policies import read_policy

MAX_POLICIES: Final = 50
"""Documents that are tried at a time."""
MAX_LINES: Final = 1000
"""Of a corpus that is tried at a time; the command line takes longer ones."""
MAX_LINE_PROBLEMS: Final = 20
"""Mistakes of a corpus that are told."""
PLACES: Final = ("tenant", "model", "pool")
"""What policies choose traffic by."""
EXPECT: Final = "expect"
ACTIONS: Final[tuple[Outcome, ...]] = ("block", "mask", "flag", "pass")


class TrialBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What a caller wants tried."""

    trial: Trial
    policies: Annotated[list[str], msgspec.Meta(max_length=MAX_POLICIES)] | None = None
    """Names of policies that are here; None = all of them, unless ``documents`` are given."""
    documents: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_POLICIES)] = []
    """Policies that are not here yet, as documents."""


class Chosen:
    """Policies that are tried, compiled once."""

    def __init__(
        self,
        actor: Actor,
        names: Sequence[str] | None,
        documents: Sequence[dict[str, Any]] = (),
        *,
        focus: str = "",
    ) -> None:
        """``names`` None = all, unless ``documents`` are given. ``InvalidError`` with all mistakes.

        The policy called ``focus`` is tried even when it is not enabled, and ``fitting`` is about it.
        """
        require(actor, Action.READ, POLICY)
        problems: list[ConfigError] = []
        found = [*_known(names, documents, problems), *_given(documents, problems)]
        self._documents = [
            (name, msgspec.structs.replace(spec, enabled=True) if name == focus else spec)
            for name, spec in found
        ]
        self._focus = dict(self._documents).get(focus)
        if problems:
            raise InvalidError.of(problems)
        self._policies = Policies(self._documents, problems=problems)
        if problems:
            raise InvalidError.of(problems)

    def fitting(self, where: Mapping[str, str]) -> dict[str, str]:
        """``where`` with a tenant, a model and a pool that the focus is for, where it says none."""
        said = dict(where)
        for name in PLACES if self._focus is not None else ():
            patterns = getattr(self._focus, f"{name}s")
            if patterns and not said.get(name):
                said[name] = patterns[0].removesuffix("*")
        return said

    def is_for(self, trial: Trial) -> bool:
        """Whether any policy holds for it."""
        model = trial.model or str((trial.body or {}).get("model") or "")
        return self._policies.select(trial.tenant, model, trial.pool) is not None

    def run(self, trial: Trial) -> TrialResult:
        """Every match, what would be done, and what would be left of the text."""
        return run_compiled(self._policies, self._documents, trial)


@dataclass(slots=True)
class Line:
    """What came of one line of a corpus."""

    number: int
    trial: Trial
    result: TrialResult
    expected: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it came out otherwise than the corpus expects."""
        return bool(self.expected) and self.expected != self.result.action


@dataclass(slots=True)
class Corpus:
    """What came of all lines."""

    lines: list[Line] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Policy and rule -> lines in which it fired."""

    @property
    def wrong(self) -> list[Line]:
        """Lines that came out otherwise than expected."""
        return [line for line in self.lines if line.is_wrong]


def run_corpus(chosen: Chosen, text: str, where: dict[str, Any]) -> Corpus:
    """Try each line, ``{"text": ..., "expect": "pass|flag|mask|block"}`` or with a ``body``.

    ``where`` is what a trial has that its line does not say. ``InvalidError`` with all mistakes, and nothing
    tried.
    """
    problems: list[ConfigError] = []
    trials = _lines(text, where, problems)
    if problems:
        raise InvalidError.of(problems[:MAX_LINE_PROBLEMS])
    corpus = Corpus()
    for number, trial, expected in trials:
        found = chosen.run(trial)
        corpus.lines.append(Line(number, trial, found, expected))
        corpus.actions[found.action] += 1
        corpus.rules.update({(each.policy, each.rule) for each in found.verdicts})
    return corpus


def _lines(text: str, where: dict[str, Any], problems: list[ConfigError]) -> list[tuple[int, Trial, str]]:
    written = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(written) > MAX_LINES:
        problems.append(ConfigError(f"has {len(written)} lines; at most {MAX_LINES} are tried here"))
        return []
    found = []
    for number, line in written:
        path = f"line {number}"
        try:
            said = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(ConfigError(f"is no JSON: {error}", path=path))
            continue
        if not isinstance(said, dict):
            problems.append(ConfigError("must be an object with a text or a body", path=path))
            continue
        expected = said.pop(EXPECT, "")
        if expected and expected not in ACTIONS:
            problems.append(ConfigError(f"must be one of {', '.join(ACTIONS)}", path=f"{path}: {EXPECT}"))
        mistakes: list[ConfigError] = []
        trial = decode_struct({**where, **said}, Trial, "", mistakes)
        problems.extend(error.within(path) for error in mistakes)
        if trial is not None:
            found.append((number, trial, expected))
    return found


def run(actor: Actor, body: TrialBody) -> TrialResult:
    """Try one text or body."""
    return Chosen(actor, body.policies, body.documents).run(body.trial)


def _known(
    names: Sequence[str] | None, documents: Sequence[dict[str, Any]], problems: list[ConfigError]
) -> list[tuple[str, GuardrailPolicySpec]]:
    """Policies of the database that are asked for, as they are in force."""
    if names is None and documents:
        return []
    rows = GuardrailPolicy.objects.select_related("active").order_by("name")
    if names is not None:
        rows = rows.filter(name__in=names)
    found = {row.name: in_force(row) for row in rows}
    for index, name in enumerate(names or ()):
        if name not in found:
            known = GuardrailPolicy.objects.values_list("name", flat=True)[:1000]
            message = f"there is no GuardrailPolicy {name!r}{did_you_mean(name, known)}"
            problems.append(ConfigError(message, path=f"policies[{index}]"))
    return list(found.items())


def _given(
    documents: Sequence[dict[str, Any]], problems: list[ConfigError]
) -> list[tuple[str, GuardrailPolicySpec]]:
    """Policies that are sent along."""
    found = []
    for index, document in enumerate(documents):
        read = read_policy(PlacedDocument(f"documents[{index}]", document), problems)
        if read is not None:
            found.append(read)
    return found
