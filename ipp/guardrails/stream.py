"""The guard of an event stream: events go on as they came once it is certain what becomes of their text.

Each channel of the stream (the content of a choice, the arguments of a tool call) has its own finder, which
is certain of all but the last ``held`` code points of what has come. Events wait in one queue, in their
order, until all text in them is certain; then they are sent: untouched when nothing was found in them, or
with just the tokens replaced whose text changes. A find that spans several events is replaced in the first.

An event does not wait for ever. Where a choice goes on with another channel (from reasoning to content), or
more waits than all channels together have to hold, the event at the head is sent with the part of its text
that is certain; the rest moves to the channel's next event, or to one of its own before the channel ends. So
what a client puts together is the same, and no more than ``delay`` code points of a channel that goes on, or
``MAX_QUEUED_BYTES`` of events, are ever held back.

What ends a choice (finish_reason, the end of a block, ``[DONE]``, the end of the body) makes its text
certain, and stands behind it. A find that blocks ends the stream: what was certain before it is sent, then
the API's own way to say that content was filtered, an error, and the end. Owned by one exchange; nothing
waits here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from dataplane.extproc.events import EndBody
from ipp.guardrails.arguments import ArgumentsFinder
from ipp.guardrails.dialects import (
    ALL,
    BARE,
    OTHER,
    Channel,
    Ending,
    carrier,
    is_arguments,
    is_media,
    lies_at,
    read,
)
from ipp.guardrails.finding import Finder, Found, PlainFinder, Searchers, applied
from ipp.guardrails.frames import DONE, Frames, beside, data_of, with_data, without_rest
from ipp.guardrails.shapes import ANSWER, Kind
from ipp.guardrails.texts import (
    Keys,
    NoJsonError,
    Text,
    UnreadableError,
    decoded,
    edited,
    find_texts,
    path_of,
    token,
    without_details,
)
from ipp.guardrails.verdicts import MAX_VERDICTS, Refusal, Verdict, unreadable
from ipp.guardrails.waiting import Alike, GoingText, Speaking, WaitingEvent

MAX_EVENT_BYTES: Final = 8 << 20
"""One event; those that repeat a whole answer at its end are the long ones."""
MAX_EVENT_TEXTS: Final = 10_000
"""Texts in one event: while one is looked at, all other exchanges wait."""
MAX_QUEUED_BYTES: Final = 1 << 20
"""Events that wait; with more, the first is sent with what is certain of it."""
PATIENCE: Final = 256
"""Code points that each other text waits at least before an event is sent that is not certain to its end."""
MAX_CHANNELS: Final = 1024
"""Texts that go on at the same time."""


class _CutError(Exception):
    """The stream ends here."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self.refusal = refusal


class StreamGuard:
    """Guards one event stream; a ``BodyTransform``."""

    def __init__(
        self,
        rules: Searchers,
        verdict: Callable[[int, str, Found], Verdict],
        refusal: Callable[[int, str], Refusal],
        told: Callable[[Sequence[Verdict]], None] | None = None,
    ) -> None:
        """``verdict`` and ``refusal`` make what is told of a find of the rule with an index at a path."""
        self._rules = rules
        self._verdict = verdict
        self._refusal = refusal
        self._told = told
        self._frames = Frames()
        self._alike: Alike | None = None
        self._texts: dict[Channel, GoingText] = {}
        self._tails: dict[Channel, str] = {}
        """Of texts that have ended, what they said last: a server may have one go on all the same."""
        self._speaking: dict[Channel, Speaking] = {}
        """By choice, the channels that said something last."""
        self._queue: deque[WaitingEvent] = deque()
        self._queued_bytes = 0
        self._ending = Ending()
        self._verdicts: list[Verdict] = []
        self._told_count = 0

    @property
    def delay(self) -> int:
        """Most code points that are held back of a text that goes on."""
        return self._rules.delay

    @property
    def usage(self) -> Any:
        """The last usage that the stream told; None when it told none."""
        return self._ending.usage

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """What is sent on; ``EndBody`` when the stream is cut."""
        out: list[bytes] = []
        try:
            for raw in self._frames.feed(chunk, end):
                self._read(raw)
                self._send(out)
            if self._frames.held > MAX_EVENT_BYTES:
                raise _CutError(unreadable(f"has an event of more than {MAX_EVENT_BYTES} bytes", "stream"))
            if end:
                self._end(ALL)
                self._send(out)
        except _CutError as cut:
            for event in self._queue:
                event.is_overdue = True
            self._send(out)
            out.append(self._ending.cut(cut.refusal))
            self._queue.clear()
            self._tell()
            raise EndBody(b"".join(out)) from None
        self._tell()
        return out[0] if len(out) == 1 else b"".join(out)

    def _tell(self) -> None:
        if self._verdicts:
            if self._told is not None:
                self._told(self._verdicts)
            self._verdicts = []

    def _read(self, raw: bytes) -> None:
        """Take in one event."""
        data = data_of(raw)
        if rest := beside(raw):
            raw = self._look_beside(raw, rest)
        if data is None:
            self._overtake(raw)  # a comment, which keeps connections open
            return
        if self._alike is not None and self._read_alike(raw, data, self._alike):
            return
        if data.strip() == DONE:
            self._end(ALL)
            self._enqueue(WaitingEvent(raw, data, None, None))
            return
        try:
            value = decoded(data, is_strict=False)
            if not isinstance(value, dict | list | str):
                self._read_bare(raw, data)  # a number may be half of one
                return
            found = find_texts(data, ANSWER, MAX_EVENT_TEXTS)
        except NoJsonError:
            self._read_bare(raw, data)
            return
        except UnreadableError as error:
            raise _CutError(unreadable(error, "stream")) from None
        self._ending.came(value)
        event = WaitingEvent(raw, data, value, found)
        reading = read(value, found.texts)
        self._alike = Alike.of(event, reading)
        for text, key in zip(found.texts, reading.channels, strict=True):
            words = text.read(data)
            if key is None or not lies_at(value, text, words):
                self._look_at(event, text, words)
            elif not is_media(value, text):
                self._go_on(event, key, text, words)
        for key in reading.ends:
            self._end(key)
        if isinstance(value, dict) and value.get("type") == "ping" and not event.edits:
            self._overtake(raw)
            return
        self._enqueue(event)

    def _read_alike(self, raw: bytes, data: bytes, alike: Alike) -> bool:
        """Take in an event that differs from the one before in the words of one text; whether it is one."""
        found = alike.words_of(data)
        if found is None:
            return False
        text, words = found
        event = WaitingEvent(raw, data, alike.event.value, alike.event.found)
        self._go_on(event, alike.key, text, words)
        self._enqueue(event)
        return True

    def _look_beside(self, raw: bytes, rest: bytes) -> bytes:
        """The event without what it says beside its data, if any of that is to be masked."""
        finder = PlainFinder(self._rules)
        finder.feed(rest.decode("utf-8", "replace"), True)
        self._note((), finder)
        return without_rest(raw) if finder.regions else raw

    def _read_bare(self, raw: bytes, data: bytes) -> None:
        """An event whose data is no JSON says one text, which goes on in the next one."""
        event = WaitingEvent(raw, data, None, None)
        self._go_on(event, BARE, Text((), Kind.DATA, 0, len(data)), data.decode("utf-8", "replace"))
        self._enqueue(event)

    def _look_at(self, event: WaitingEvent, text: Text, words: str) -> None:
        """A text that stands for itself."""
        if not words:
            return
        finder: Finder = (ArgumentsFinder if text.kind is Kind.JSON else PlainFinder)(self._rules)
        finder.feed(words, True)
        self._note(text.keys, finder)
        if finder.regions:
            said = text.saying(event.data, applied(words, finder.regions))
            event.edits.append((text.start, text.end, said))
            event.keys.append(text.keys)

    def _go_on(self, event: WaitingEvent, key: Channel, text: Text, words: str) -> None:
        """A text goes on."""
        going = self._texts.get(key)
        if going is None:
            if len(self._texts) >= MAX_CHANNELS:
                raise _CutError(unreadable(f"has more than {MAX_CHANNELS} texts at a time", "stream"))
            finder = (ArgumentsFinder if is_arguments(event.value, text) else PlainFinder)(self._rules)
            going = self._texts[key] = GoingText(key, finder)
            if (tail := self._tails.pop(key, "")) and isinstance(finder, PlainFinder):
                going.go_on_after(tail)
        going.model = event.value, text
        if words and self._speaking.setdefault(key[:2], Speaking()).is_news(event, key):
            for waiting in self._queue:
                waiting.is_overdue |= any(part[0].key[:2] == key[:2] for part in waiting.parts)
        new = words if key[0] != OTHER else self._as_repeated(going, text, words)
        going.feed(new, False)
        self._note(text.keys, going.finder, going.torn)
        going.queued += 1
        event.parts.append((going, going.total, text, words))

    def _as_repeated(self, going: GoingText, text: Text, words: str) -> str:
        """The words without what is masked in them where they may say all of the text again, and more.

        Nobody knows of such a stream whether its texts go on or are repeated, so both are looked at.
        """
        last, going.last = going.last, words
        if not last or not words.startswith(last):
            return words
        finder: Finder = (ArgumentsFinder if text.kind is Kind.JSON else PlainFinder)(self._rules)
        finder.feed(words, True)
        modes = [searcher.mode for searcher in self._rules.items]
        finder.found = [found for found in finder.found if modes[found.rule] != "flag"]
        self._note(text.keys, finder)
        return applied(words, finder.regions)

    def _end(self, beginning: Channel) -> None:
        """All texts whose keys begin like this end; what no event is left to carry gets one of its own."""
        size = len(beginning)
        for key in [key for key in self._texts if key[:size] == beginning]:
            text = self._texts.pop(key)
            self._speaking.pop(key[:2], None)
            text.feed("", True)
            model = text.model
            if model is None:
                continue
            self._note(model[1].keys, text.finder, text.torn)
            if len(self._tails) < MAX_CHANNELS:
                self._tails[key] = text.tail(self._rules.held + 1)
            if not text.queued and (words := text.take(text.total)):
                self._enqueue(WaitingEvent(carrier(*model, words), b"", None, None))

    def _note(self, keys: Keys, finder: Finder, torn: Found | None = None) -> None:
        """Make verdicts of what has been found; end the stream when it blocks, or cannot be masked."""
        if not finder.found:
            return
        path = path_of(keys)
        for found in finder.found:
            self._told_count += 1
            if self._told_count <= MAX_VERDICTS:
                self._verdicts.append(self._verdict(found.rule, path, found))
        finder.found = []
        blocking = finder.blocked or torn
        if blocking is not None:
            raise _CutError(self._refusal(blocking.rule, path))

    def _overtake(self, raw: bytes) -> None:
        """Send at once what does not stand in any order."""
        self._queue.appendleft(WaitingEvent(raw, b"", None, None))
        self._queued_bytes += len(raw)

    def _enqueue(self, event: WaitingEvent) -> None:
        self._queue.append(event)
        self._queued_bytes += len(event.raw)

    def _send(self, out: list[bytes]) -> None:
        """Send from the head of the queue what can be."""
        queue = self._queue
        while queue:
            event = queue[0]
            is_due = event.is_overdue or self._queued_bytes > MAX_QUEUED_BYTES or event.is_ready()
            if not is_due and not self._is_crowded(event):
                return
            queue.popleft()
            self._queued_bytes -= len(event.raw)
            out.append(self._sent(event))

    def _is_crowded(self, head: WaitingEvent) -> bool:
        """Whether other texts wait for this event more than they have to for themselves."""
        if len(self._texts) < 2:
            return False
        own = {part[0].key for part in head.parts}
        waiting = sum(text.total - text.sent for key, text in self._texts.items() if key not in own)
        return waiting > max(self._rules.delay, PATIENCE) * len(self._texts)

    def _sent(self, event: WaitingEvent) -> bytes:
        """The event as it is sent."""
        edits, keys = event.edits, event.keys
        for text, upto, place, words in event.parts:
            text.queued -= 1
            said = text.take(upto)
            if said != words:
                new = said.encode("utf-8", "replace") if place.kind is Kind.DATA else token(said)
                edits.append((place.start, place.end, new))
                keys.append(place.keys)
        self._ending.sent(event.value)
        if not edits:
            return event.raw
        if event.found is not None:
            edits += without_details(event.found, event.data, keys)
        return with_data(event.raw, edited(event.data, edits))
