"""The pane in which policies are tried, and what it shows: for a policy as it is, and for a draft of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms

from controlplane.core.console.texts import Problem
from controlplane.core.errors import Detail, InvalidError
from controlplane.core.roles import Actor
from controlplane.policies import trials
from controlplane.policies.models import GuardrailPolicy
from controlplane.policies.pages import marks
from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError
from ipp.guardrails.trial import MAX_TEXT, Trial, TrialResult

MAX_SAMPLE: Final = 1_000_000
"""Characters that are pasted at a time."""
MAX_LINES_SHOWN: Final = 50
"""Of a corpus, with their matches; those that are not as expected come first."""
TEXT, BODY, CORPUS = "text", "body", "corpus"
_SAMPLES: Final = ((TEXT, "Text"), (BODY, "JSON request or answer"), (CORPUS, "Corpus, JSON lines"))
_STAGES: Final = (("request", "Request"), ("response", "Answer"), ("stream", "Streamed answer"))
_DIALECTS: Final = (
    ("chat", "OpenAI chat completions"),
    ("completions", "OpenAI completions"),
    ("responses", "OpenAI responses"),
    ("messages", "Anthropic messages"),
    ("gemini", "Gemini generateContent"),
    ("embeddings", "Embeddings"),
)


class TryForm(forms.Form):
    """What is tried, and as what."""

    use_required_attribute = False  # it may stand in a form that does something else as well

    sample = forms.CharField(
        strip=False,
        max_length=MAX_SAMPLE,
        label="Text, JSON, or JSON lines",
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text=(
            'Nothing of it is kept. Lines of a corpus: {"text": "…", "expect": "block"}, '
            "where expect is block, mask, flag or pass, or left out."
        ),
    )
    sort = forms.ChoiceField(choices=_SAMPLES, label="It is a", required=False)
    stage = forms.ChoiceField(choices=_STAGES, required=False)
    dialect = forms.ChoiceField(choices=_DIALECTS, label="API of the text", required=False)
    tenant = forms.CharField(max_length=253, required=False)
    model = forms.CharField(max_length=256, required=False)
    pool = forms.CharField(max_length=253, required=False)
    together = forms.BooleanField(required=False, label="Together with all other policies")

    def where(self) -> dict[str, str]:
        """What a trial is of."""
        said = self.cleaned_data
        found = {name: said[name] for name in trials.PLACES if said[name]}
        return {"stage": said["stage"] or "request", "dialect": said["dialect"] or "chat", **found}


@dataclass(slots=True)
class Shown:
    """What came of one text or body."""

    result: TrialResult
    hits: list[marks.Hit]
    pieces: list[marks.Piece]
    """What was tried, with its matches."""
    left: list[marks.Piece] = field(default_factory=list)
    """What goes on; empty when nothing does."""
    error: str = ""
    """What the client gets instead, as JSON."""


@dataclass(slots=True)
class ShownLine:
    """The same of a line of a corpus."""

    line: trials.Line
    pieces: list[marks.Piece]
    rules: list[str]


@dataclass(slots=True)
class Tried:
    """What the pane shows."""

    form: TryForm
    problems: Sequence[Problem | Detail] = ()
    shown: Shown | None = None
    corpus: trials.Corpus | None = None
    lines: list[ShownLine] = field(default_factory=list)
    counts: list[tuple[str, int]] = field(default_factory=list)
    """Of a corpus: actions and how often each."""
    rules: list[tuple[str, str, int]] = field(default_factory=list)
    """Of a corpus: policy, rule, and in how many lines it fired."""
    where: dict[str, str] = field(default_factory=dict)
    """As what it was tried."""
    is_for_nobody: bool = False
    """Whether no policy holds for such traffic."""

    @property
    def wrong_words(self) -> str:
        """How many lines of a corpus came out otherwise."""
        return f"{0 if self.corpus is None else len(self.corpus.wrong)} not as expected"


def try_out(
    actor: Actor, said: Mapping[str, Any], name: str, draft: Mapping[str, Any] | None = None
) -> Tried:
    """Try the policy called ``name``, or a draft of it, on what a form says."""
    form = TryForm(said)
    if not form.is_valid():
        return Tried(form)
    try:
        chosen = _chosen(actor, name, draft, together=form.cleaned_data["together"])
        where = chosen.fitting(form.where())
        sample = form.cleaned_data["sample"]
        if form.cleaned_data["sort"] == CORPUS:
            return _corpus(form, where, trials.run_corpus(chosen, sample, where))
        return _single(form, where, chosen, sample)
    except InvalidError as error:
        return Tried(form, problems=error.details or [Detail("", error.message)])


def _chosen(actor: Actor, name: str, draft: Mapping[str, Any] | None, *, together: bool) -> trials.Chosen:
    if draft is None:
        return trials.Chosen(actor, [name, *_others(name, together)], focus=name)
    return trials.Chosen(actor, _others(name, together), [dict(draft)], focus=name)


def _others(name: str, together: bool) -> list[str]:
    """All that were ever published."""
    if not together:
        return []
    published = GuardrailPolicy.objects.filter(rollouts__isnull=False).exclude(name=name)
    return list(published.values_list("name", flat=True).distinct())


def _single(form: TryForm, where: dict[str, str], chosen: trials.Chosen, sample: str) -> Tried:
    given: dict[str, Any] = {TEXT: sample}
    if form.cleaned_data["sort"] == BODY:
        given = {BODY: _json(sample)}
    problems: list[ConfigError] = []
    if len(sample) > MAX_TEXT:
        problems.append(ConfigError(f"is longer than {MAX_TEXT:,} characters; try it as a corpus"))
    trial = None if problems else decode_struct({**where, **given}, Trial, "", problems)
    if trial is None or problems:
        raise InvalidError.of(problems)
    found = chosen.run(trial)
    hits = marks.numbered(found.verdicts)
    pieces = marks.of_text(sample, hits) if trial.body is None else marks.of_body(trial.body, hits)
    shown = Shown(found, hits, pieces)
    if found.error is not None:
        shown.error = json.dumps(found.error, indent=2, ensure_ascii=False)
    if found.text:
        shown.left = marks.of_text(found.text, [])
    elif found.body is not None:
        shown.left = marks.of_body(found.body, [])
    return Tried(form, shown=shown, where=where, is_for_nobody=not chosen.is_for(trial))


def _json(sample: str) -> Any:
    try:
        found = json.loads(sample)
    except (ValueError, RecursionError) as error:
        raise InvalidError.of([ConfigError(f"is no JSON: {error}", path="body")]) from None
    if not isinstance(found, dict):
        raise InvalidError.of([ConfigError("must be a JSON object", path="body")])
    return found


def _corpus(form: TryForm, where: dict[str, str], corpus: trials.Corpus) -> Tried:
    ordered = sorted(corpus.lines, key=lambda line: (not line.is_wrong, line.number))
    lines = []
    for line in ordered[:MAX_LINES_SHOWN]:
        hits = marks.numbered(line.result.verdicts)
        trial = line.trial
        pieces = (
            marks.of_text(trial.text or "", hits) if trial.body is None else marks.of_body(trial.body, hits)
        )
        rules = list(dict.fromkeys(f"{each.policy}/{each.rule}" for each in line.result.verdicts))
        lines.append(ShownLine(line, pieces, rules))
    return Tried(
        form,
        corpus=corpus,
        lines=lines,
        counts=[(action, corpus.actions[action]) for action in trials.ACTIONS],
        rules=[(policy, rule, count) for (policy, rule), count in corpus.rules.most_common()],
        where=where,
    )
