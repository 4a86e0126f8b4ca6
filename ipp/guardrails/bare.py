"""What becomes of an answer that is not one JSON document: text, several of them, or half of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ipp.guardrails.arguments import ArgumentsFinder
from ipp.guardrails.documents import Document, across, bare_finder, documents
from ipp.guardrails.finding import PlainFinder, Searchers, applied
from ipp.guardrails.texts import UnreadableError
from ipp.guardrails.verdicts import (
    MAX_VERDICTS,
    Outcome,
    Refusal,
    Verdict,
    action_of,
    refusal_of,
    unreadable,
)

if TYPE_CHECKING:
    from ipp.guardrails.at_work import RuleAtWork


def check_bare(body: bytes, searchers: Searchers, rules: Sequence[RuleAtWork]) -> Outcome:
    """``rules`` are those of the searchers."""
    words = body.decode("utf-8", "replace")
    verdicts: list[Verdict] = []
    refusal: Refusal | None = None
    new = words
    first = bare_finder(words, searchers)
    # Strings of JSON are looked at as what they say, and then all of it as what it is.
    rest = [PlainFinder(Searchers(searchers.items))] if isinstance(first, ArgumentsFinder) else []
    for finder in (first, *rest):
        finder.feed(new, True)
        verdicts += [rules[found.rule].verdict("response", "", found) for found in finder.found]
        if finder.blocked is not None:
            refusal = refusal_of(rules[finder.blocked.rule].rule, "response")
            break
        new = applied(new, finder.regions)
    if refusal is None and rest:
        try:
            refusal = crossing(documents(words), searchers, rules, verdicts)
        except UnreadableError as error:
            return unreadable(error, "response").outcome()
    told = tuple(verdicts[:MAX_VERDICTS])
    if refusal is not None:
        return refusal.outcome(told)
    if new != words:
        body = new.encode("utf-8", "replace")
    return Outcome(action=action_of(verdicts), body=body, verdicts=told)


def crossing(
    several: Iterator[Document],
    searchers: Searchers,
    rules: Sequence[RuleAtWork],
    verdicts: list[Verdict],
    *,
    only_known: bool = False,
) -> Refusal | None:
    """What refuses an answer in which something is found over the end of a document: nothing is masked there.

    Adds to ``verdicts``.
    """
    refusal: Refusal | None = None
    for path, found in across(several, Searchers(searchers.items), only_known=only_known):
        rule = rules[found.rule]
        verdicts.append(rule.verdict("response", path, found))
        if rule.rule.mode != "flag" and refusal is None:
            refusal = refusal_of(rule.rule, "response", path)
    return refusal
