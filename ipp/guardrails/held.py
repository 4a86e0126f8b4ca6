"""Streams that are held back until they are whole, so that what is judged whole judges them too.

The events are put together to what a client would put together of them: one answer of a chat with a choice
for each text. Rules for whole answers, and those who are asked, judge that. What passes goes on as it came,
through the guard that rules for streams have; what does not is ended before its first text, in its API's way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from dataplane.extproc.events import BodyTransform, EndBody
from ipp.guardrails.answers import AnswerGuard, Later
from ipp.guardrails.dialects import Channel, Ending, is_arguments, read
from ipp.guardrails.frames import DONE, Frames, data_of
from ipp.guardrails.shapes import ANSWER
from ipp.guardrails.texts import NoJsonError, UnreadableError, decoded, find_texts, is_said
from ipp.guardrails.verdicts import Outcome, Refusal, Verdict, unreadable

_THOUGHT = (b"reasoning", b"reasoning_content", b"reasoning_text", b"thinking", b"thought", "thought")


class HeldGuard(AnswerGuard):
    """Holds a stream back; a ``BodyTransform`` of one exchange."""

    def __init__(
        self,
        check: Callable[[bytes], Outcome],
        guard: BodyTransform | None,
        veil: BodyTransform | None,
        told: Callable[[Sequence[Verdict]], None] | None,
        ask: Callable[[Outcome, Callable[[Outcome], None]], None] | None = None,
        later: Later | None = None,
        is_long: Callable[[bytes], bool] = lambda body: False,
    ) -> None:
        """``check`` judges the answer that events come to, ``guard`` is what they pass through afterwards.

        ``veil`` is what they pass through before others are asked, who are not to see what is masked.
        """
        super().__init__(self._whole, told, ask, later, is_long)
        self._judge = check
        self._guard = guard
        self._veil = veil
        self._events = b""

    def _whole(self, events: bytes) -> Outcome:
        """What becomes of all that has come; others are asked about the answer it comes to."""
        self._events = events
        try:
            answer = whole_answer(events)
        except UnreadableError as error:
            return unreadable(error, "stream").outcome()
        outcome = self._judge(answer)
        if outcome.action == "block" or self._ask is None:
            return outcome
        return replace(outcome, shown=answer if self._veil is None else whole_answer(fed(self._veil, events)))

    def _settled(self, outcome: Outcome) -> bytes:
        super()._settled(outcome)
        if outcome.action == "block":
            refusal = Refusal(outcome.code, outcome.message, outcome.param, outcome.status)
            return ended(self._events, refusal)
        return self._events if self._guard is None else fed(self._guard, self._events)

    def _give_up(self, refusal: Refusal) -> NoReturn:
        try:
            super()._give_up(refusal)
        except EndBody:
            raise EndBody(Ending().cut(refusal)) from None


def fed(guard: BodyTransform, events: bytes) -> bytes:
    """All that a guard sends of a stream."""
    try:
        return guard.feed(events, True)
    except EndBody as cut:
        return cut.last


def ended(events: bytes, refusal: Refusal) -> bytes:
    """The stream as far as it says nothing, and the end that its API has for what is refused."""
    ending, sent = Ending(), b""
    for event in Frames().feed(events, True):
        data = data_of(event)
        if data is None:
            continue
        try:
            value = decoded(data, is_strict=False)
            texts = find_texts(data, ANSWER).texts
        except UnreadableError:
            break
        ending.sent(value)
        if any(text.read(data) for text in texts):
            break
        sent += event
    return sent + ending.cut(refusal)


def whole_answer(events: bytes) -> bytes:
    """What the events come to, as one answer of a chat.

    A text that an event repeats whole is left out where it has come in pieces. An event that is no JSON says
    the text that it is; ``UnreadableError`` for one that is made to keep us busy.
    """
    pieces: dict[Channel, list[str]] = {}
    kinds: dict[Channel, str] = {}
    alone: list[str] = []
    for event in Frames().feed(events, True):
        data = data_of(event)
        if data is None or data.strip() == DONE:
            continue
        try:
            value = decoded(data, is_strict=False)
            found = find_texts(data, ANSWER)
        except NoJsonError:
            alone.append(data.decode("utf-8", "replace"))
            continue
        for text, key in zip(found.texts, read(value, found.texts).channels, strict=True):
            words = text.read(data)
            if key is not None:
                pieces.setdefault(key, []).append(words)
                kinds.setdefault(key, "arguments" if is_arguments(value, text) else _kind(key))
            elif words and is_said(text):
                alone.append(words)
    said = [(kinds[key], "".join(words)) for key, words in pieces.items()]
    choices = [_choice(at, *each) for at, each in enumerate(said or [("content", text) for text in alone])]
    return msgspec.json.encode({"object": "chat.completion", "choices": choices})


def _kind(key: Channel) -> str:
    if b"partial_json" in key:
        return "arguments"
    words = [part for part in key if isinstance(part, (bytes, str))]
    is_thought = any(part in _THOUGHT or "reasoning" in str(part) for part in words)
    return "reasoning_content" if is_thought else "content"


def _choice(index: int, kind: str, words: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if kind == "arguments":
        call = {"id": f"call_{index}", "type": "function", "function": {"name": "f", "arguments": words}}
        message["tool_calls"] = [call]
    else:
        message[kind] = words
    return {"index": index, "message": message, "finish_reason": "stop"}
