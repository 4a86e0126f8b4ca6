"""A policy at work: what becomes of a request, of a whole answer, and of an answer that streams.

A compiled policy is made once of the rules that hold for some traffic and serves any number of exchanges; it
keeps nothing of them. Rules of bodies come first, then those of texts, so what a rule of bodies puts in is
looked at as well; whoever has to be asked comes last and sees what is left. Blocking beats masking, masking
beats flagging. Nothing here waits; ``asking`` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from dataplane.config.guardrails import Mode, Stage
from dataplane.errors import ConfigError
from dataplane.extproc.events import BodyTransform
from ipp.guardrails.answers import AnswerGuard, Later, withheld
from ipp.guardrails.arguments import ArgumentsFinder
from ipp.guardrails.asked_stream import AskedStream
from ipp.guardrails.at_work import RESTORING, SAID_ONLY, Asked, RuleAtWork
from ipp.guardrails.bare import check_bare, crossing
from ipp.guardrails.bare_prompts import bare_prompt
from ipp.guardrails.documents import items
from ipp.guardrails.edits import changed
from ipp.guardrails.either import EitherGuard, StreamKind
from ipp.guardrails.finding import Finder, PlainFinder, Searcher, Searchers, applied
from ipp.guardrails.held import HeldGuard
from ipp.guardrails.joined import IDLE, Together
from ipp.guardrails.lengths import Pace
from ipp.guardrails.masking import Vault, hidden
from ipp.guardrails.matches import (
    MAX_STREAM_MATCH,
    BodyMatch,
    Change,
    ExpectingRule,
    Facts,
    Match,
    TextRule,
    by_place,
)
from ipp.guardrails.parts import across_parts
from ipp.guardrails.shapes import ANSWER, REQUEST, Kind
from ipp.guardrails.stream import StreamGuard
from ipp.guardrails.texts import (
    Keys,
    NoJsonError,
    Text,
    UnreadableError,
    decoded,
    edited,
    find_texts,
    first_wins,
    is_said,
    number,
    path_of,
    without_details,
)
from ipp.guardrails.verdicts import (
    MAX_VERDICTS,
    Outcome,
    Refusal,
    Verdict,
    action_of,
    refusal_of,
    unreadable,
)


class Seen(NamedTuple):
    """What rules of texts make of a body."""

    body: bytes
    verdicts: list[Verdict]
    refusal: Refusal | None


class CompiledPolicy:
    """All rules that hold for some traffic, in their order of precedence."""

    def __init__(self, rules: Sequence[RuleAtWork]) -> None:
        """``ConfigError`` when a rule for streams needs more than a window of the text."""
        self.rules = tuple(rules)
        self.pace = Pace()
        """How long requests take."""
        texts: dict[Stage, tuple[RuleAtWork, ...]] = {
            stage: tuple(rule for rule in rules if rule.at(stage) is not None)
            for stage in ("request", "response", "stream")
        }
        self._texts = texts
        self._bodies: dict[Stage, tuple[RuleAtWork, ...]] = {
            stage: tuple(rule for rule in rules if rule.body is not None and rule.looks_at(stage))
            for stage in ("request", "response")
        }
        self.asked: dict[Stage, tuple[RuleAtWork, ...]] = {
            stage: tuple(rule for rule in rules if rule.asked is not None and rule.looks_at(stage))
            for stage in ("request", "response", "stream")
        }
        """Rules of which somebody else judges, by stage; ``asking.ask`` asks them."""
        for rule in texts["stream"]:
            longest = rule.answer.longest if rule.answer is not None else None
            if longest is None or longest > MAX_STREAM_MATCH:
                raise ConfigError(
                    f"rule '{rule.rule.name}' finds texts of more than {MAX_STREAM_MATCH} code points, which "
                    "would be held back in streams; bound it, or leave out stage stream",
                    path=f"{rule.policy}.{rule.rule.name}",
                )
        self._answers = {
            stage: Searchers([_hiding(rule, stage) for rule in texts[stage]])
            for stage in ("response", "stream")
        }
        self.counts_tokens = any(rule.rule.type == "maxInputTokens" for rule in self._bodies["request"])
        """Whether a rule goes by the number of the prompt's tokens."""
        self._expects = any(isinstance(rule.answer, ExpectingRule) for rule in texts["response"])
        holding = [
            rule._replace(holds=False)
            for rule in rules
            if rule.holds and rule.looks_at("response") and not rule.looks_at("stream")
        ]
        if holding:
            holding += [
                rule._replace(rule=replace(rule.rule, stages=["response"]), holds=False)
                for rule in self.asked["stream"]
            ]
        self._held = CompiledPolicy(holding) if holding else None
        """What judges streams that are held back until they are whole."""
        self.needs_request = bool(texts["request"] or self._bodies["request"] or self.asked["request"])
        """Whether a request's body has to be seen whole."""
        reading = (*texts["request"], *self.asked["request"])
        self._has_to_read = any(rule.rule.mode != "flag" for rule in reading)
        """Whether a prompt that nobody can read may not pass."""
        restores = any(rule.restores and rule.rule.mode == "mask" for rule in texts["request"])
        looks = texts["response"] or self._bodies["response"] or self.asked["response"]
        self.needs_response = bool(looks) or restores
        """Whether whole answers have to be seen, or those at least to requests with a vault."""
        self.looks_at_answers = bool(looks or texts["stream"] or self.asked["stream"])
        self.needs_stream = bool(texts["stream"] or self.asked["stream"] or holding) or restores
        """Whether streams have to be seen; likewise."""

    @property
    def delay(self) -> int:
        """Most code points at the end of what a stream has said that are held back while it goes on."""
        return self._answers["stream"].delay

    def check_request(self, body: bytes, facts: Facts = Facts()) -> Outcome:  # noqa: B008  # immutable
        """What becomes of a request with this body."""
        try:
            value = decoded(body)
            found = find_texts(body, REQUEST)
            said = [text.read(body) for text in found.texts]
            if self._bodies["request"] and not isinstance(value, dict):
                raise UnreadableError("is no JSON object")
        except UnreadableError as error:
            return unreadable(error).outcome()
        variants = (
            [value, json.loads(body, object_pairs_hook=first_wins, parse_int=number)]
            if found.repeats
            else [value]
        )
        if self._has_to_read and (field := next(filter(None, map(bare_prompt, variants)), "")):
            why = f"has token ids or embeddings in '{field}', which guardrails cannot read: send text"
            return replace(unreadable(why), param=field).outcome()
        verdicts, changes, refusal = self._check_fields(variants, facts, "request")
        if refusal is not None:
            return refusal.outcome(tuple(verdicts))
        new = body
        if changes:
            new = changed(body, changes)
            found = find_texts(new, REQUEST)
            said = [text.read(new) for text in found.texts]
        vault = Vault()
        searchers = Searchers([_masking(rule, vault, said) for rule in self._texts["request"]])
        seen = self._see(new, found.texts, said, searchers, "request")
        verdicts += seen.verdicts
        if seen.refusal is not None:
            return seen.refusal.outcome(tuple(verdicts[:MAX_VERDICTS]))
        return Outcome(
            action=action_of(verdicts),
            body=seen.body,
            verdicts=tuple(verdicts[:MAX_VERDICTS]),
            vault=self._remembering(vault, value),
        )

    def _remembering(self, vault: Vault, request: Any) -> Vault | None:
        """What is kept of the request for its answer; None = nothing."""
        for rule in self._texts["response"] if self._expects and isinstance(request, dict) else ():
            answer: object = rule.answer
            expected = answer.for_answer_to(request) if isinstance(answer, ExpectingRule) else None
            if expected is not None:
                vault.expected[rule.key] = expected
        return vault if vault or vault.expected else None

    def check_response(self, body: bytes, vault: Vault | None = None) -> Outcome:
        """What becomes of a whole answer; ``vault`` is the request's."""
        searchers = self._searchers("response", vault)
        if not searchers.items and searchers.vault is None and not self._bodies["response"]:
            return Outcome(action="pass", body=body)
        try:
            value = decoded(body, is_strict=False)
            found = find_texts(body, ANSWER)
        except NoJsonError:
            return check_bare(body, searchers, self._texts["response"])
        except UnreadableError as error:
            return unreadable(error, "response").outcome()
        if not isinstance(value, dict | list | str):
            return check_bare(body, searchers, self._texts["response"])
        verdicts: list[Verdict] = []
        refusal: Refusal | None = None
        if isinstance(value, dict):
            verdicts, changes, refusal = self._check_fields([value], Facts(), "response")
            if changes:
                body = changed(body, changes)
                found = find_texts(body, ANSWER)
        said = [text.read(body) for text in found.texts]
        seen = self._see(body, found.texts, said, searchers, "response")
        verdicts += seen.verdicts
        told = tuple(verdicts[:MAX_VERDICTS])
        refusal = refusal or seen.refusal
        if refusal is None and isinstance(value, list):
            several = items(value, found, said)
            refusal = crossing(several, searchers, self._texts["response"], verdicts, only_known=True)
            told = tuple(verdicts[:MAX_VERDICTS])
        if refusal is not None:
            return replace(refusal.outcome(told), body=withheld(value, refusal))
        return Outcome(action=action_of(verdicts), body=seen.body, verdicts=told)

    def open_answer(
        self,
        kind: StreamKind,
        vault: Vault | None = None,
        told: Callable[[Sequence[Verdict]], None] | None = None,
        later: Later | None = None,
    ) -> BodyTransform | None:
        """What an answer is fed through whose content type says its kind; None when nothing has to see it.

        ``told`` gets the verdicts as they fall; ``later`` looks at large answers beside the event loop.
        """
        if not (vault or self.looks_at_answers):
            return None
        return EitherGuard(kind, partial(self.open_stream, vault=vault, told=told, later=later))

    def open_stream(
        self,
        kind: StreamKind,
        vault: Vault | None = None,
        told: Callable[[Sequence[Verdict]], None] | None = None,
        later: Later | None = None,
    ) -> BodyTransform | None:
        """The same for an answer that is what it says.

        ``kind``: ``sse`` for an event stream, ``json`` for an answer in pieces that is judged whole.
        """
        stage: Stage = "stream" if kind == "sse" else "response"
        searchers = self._searchers(stage, vault)
        if kind == "json":
            asked = self.asked["response"]
            if not (searchers.items or searchers.vault is not None or self._bodies["response"] or asked):
                return None
            ask = partial(self._ask_about_answer, asked[0].asked) if asked else None
            check = self._check_and_show if vault and asked else self.check_response
            return AnswerGuard(partial(check, vault=vault), told, ask, later, self.pace.is_long)
        if self._held is None and self.asked["stream"]:
            return self._asked_stream(vault, told)
        held, guard = self._held, self._stream_guard(searchers, told)
        if held is None:
            return guard
        asked = held.asked["response"]
        ask = partial(held._ask_about_answer, asked[0].asked) if asked else None
        veil = self._stream_guard(self._searchers("stream", vault and vault.kept()), None) if asked else None
        check = partial(held.check_response, vault=vault)
        return HeldGuard(check, guard, veil, told, ask, later, self.pace.is_long)

    def _asked_stream(
        self, vault: Vault | None, told: Callable[[Sequence[Verdict]], None] | None
    ) -> AskedStream:
        """What asks about a stream while it passes: behind the rules, before placeholders are turned back."""
        asked = self.asked["stream"]
        first = self._stream_guard(self._searchers("stream", vault.kept() if vault else None), told)
        last = self._stream_guard(Searchers((), vault), None) if vault else None
        somebody = cast("Asked", asked[0].asked)
        return AskedStream(first, last, partial(somebody.ask_about, asked, "stream"), told)

    def _stream_guard(
        self, searchers: Searchers, told: Callable[[Sequence[Verdict]], None] | None
    ) -> StreamGuard | None:
        """What looks at a stream while it passes; None when nothing does."""
        if not searchers.items and searchers.vault is None:
            return None
        rules = self._texts["stream"]
        return StreamGuard(
            searchers,
            lambda index, path, found: rules[index].verdict("stream", path, found),
            lambda index, path: refusal_of(rules[index].rule, "stream", path),
            told,
        )

    def _check_and_show(self, body: bytes, vault: Vault | None) -> Outcome:
        """The same, and what is asked about: nobody else learns what the placeholders stand for."""
        outcome = self.check_response(body, vault)
        if outcome.action == "block" or vault is None:
            return outcome
        return replace(outcome, shown=self.check_response(body, vault.kept()).body)

    def _ask_about_answer(
        self, somebody: Asked | None, outcome: Outcome, take: Callable[[Outcome], None]
    ) -> None:
        if somebody is not None:
            somebody.ask_later(self, "response", outcome, take)

    def _searchers(self, stage: Stage, vault: Vault | None) -> Searchers:
        plain = self._answers[stage]
        if vault is None:
            return plain
        if stage != "response" or not vault.expected:
            return Searchers(plain.items, vault)
        items = [
            item._replace(rule=vault.expected.get(rule.key, item.rule))
            for item, rule in zip(plain.items, self._texts[stage], strict=True)
        ]
        return Searchers(items, vault)

    def _check_fields(
        self, variants: Sequence[Mapping[str, Any]], facts: Facts, stage: Stage
    ) -> tuple[list[Verdict], list[Change], Refusal | None]:
        """What rules of bodies say of the body, as each reader may take it."""
        verdicts: list[Verdict] = []
        changes: list[Change] = []
        refusal: Refusal | None = None
        for at_work in self._bodies[stage]:
            check = at_work.body
            if check is None:
                continue
            began = perf_counter_ns()
            matches = [match for variant in variants for match in check.check(variant, facts)]
            took = (perf_counter_ns() - began) // 1000
            for match in by_place(matches):
                mode = at_work.rule.mode
                if mode == "mask" and not match.changes:
                    mode = "block"
                verdicts.append(_field_verdict(at_work, match, stage, mode, took))
                if mode == "block" and refusal is None:
                    refusal = refusal_of(at_work.rule, stage, match.path)
                elif mode == "mask":
                    changes += match.changes
        return verdicts, changes, refusal

    def _see(
        self, body: bytes, texts: Sequence[Text], said: Sequence[str], searchers: Searchers, stage: Stage
    ) -> Seen:
        rules = self._texts[stage]
        verdicts: list[Verdict] = []
        edits: list[tuple[int, int, bytes]] = []
        changed_keys: list[Keys] = []
        blocking: tuple[int, str] | None = None
        unsaid = searchers
        if any(rule.rule.type in SAID_ONLY for rule in rules):
            unsaid = _but(searchers, [rule.rule.type in SAID_ONLY for rule in rules])
        # Arguments are JSON, in which words may be spelled in many ways: one by one.
        plain = [words if text.kind is not Kind.JSON else "" for text, words in zip(texts, said, strict=True)]
        together = Together(plain, searchers)
        for index, (text, words) in enumerate(zip(texts, said, strict=True)):
            if not words:
                continue
            mine = searchers if unsaid is searchers or is_said(text) else unsaid
            left = mine if text.kind is Kind.JSON else together.of(index, mine)
            if left is None:
                continue
            finder: Finder = ArgumentsFinder(left) if text.kind is Kind.JSON else PlainFinder(left)
            finder.feed(words, True)
            if finder.found:
                path = path_of(text.keys)
                verdicts += [rules[found.rule].verdict(stage, path, found) for found in finder.found]
                if finder.blocked is not None and (blocking is None or finder.blocked.rule < blocking[0]):
                    blocking = finder.blocked.rule, path
            if finder.regions and blocking is None:
                edits.append((text.start, text.end, text.saying(body, applied(words, finder.regions))))
                changed_keys.append(text.keys)
        if stage == "request" and blocking is None and any(rule.rule.mode != "mask" for rule in rules):
            looking = _but(unsaid, [rule.rule.mode == "mask" for rule in rules])
            for text, found in across_parts(texts, said, looking):
                verdicts.append(rules[found.rule].verdict(stage, path_of(text.keys), found))
                if rules[found.rule].rule.mode == "block" and blocking is None:
                    blocking = found.rule, path_of(text.keys)
        if blocking is not None:
            return Seen(body, verdicts, refusal_of(rules[blocking[0]].rule, stage, blocking[1]))
        if edits and stage != "request":
            edits += without_details(find_texts(body, ANSWER), body, changed_keys)
        return Seen(edited(body, edits), verdicts, None)


def _but(searchers: Searchers, idle: Sequence[bool]) -> Searchers:
    """The same, of which some find nothing."""
    items = [
        searcher._replace(rule=IDLE) if is_idle else searcher
        for searcher, is_idle in zip(searchers.items, idle, strict=True)
    ]
    return Searchers(items, searchers.vault)


def _field_verdict(at_work: RuleAtWork, match: BodyMatch, stage: Stage, mode: Mode, took: int) -> Verdict:
    return Verdict(
        policy=at_work.policy,
        rule=at_work.rule.name,
        type=at_work.rule.type,
        kind=match.kind,
        stage=stage,
        action=mode,
        path=match.path,
        latency_us=took,
    )


def _hiding(at_work: RuleAtWork, stage: Stage) -> Searcher:
    """The rule in answers: what it masks is masked for good."""
    names = at_work.rule.type == RESTORING

    def put(match: Match, part: str) -> str:
        return hidden(match.kind, match, names=names)

    return Searcher(_text_rule(at_work, stage), at_work.rule.mode, put)


def _masking(at_work: RuleAtWork, vault: Vault, said: Sequence[str]) -> Searcher:
    """The rule in a request."""
    if not at_work.restores or at_work.rule.mode != "mask":
        return _hiding(at_work, "request")

    def put(match: Match, part: str) -> str:
        if not vault:
            vault.avoid(said)
        return vault.placeholder(match.kind, part) or hidden(match.kind, match, names=True)

    return Searcher(_text_rule(at_work, "request"), at_work.rule.mode, put)


def _text_rule(at_work: RuleAtWork, stage: Stage) -> TextRule:
    found = at_work.at(stage)
    if found is None:
        raise TypeError(f"{at_work.rule.name} is no rule of texts")
    return found
