"""Event streams of which somebody else judges: held, asked about window by window, and sent on when judged.

Events that rules have let pass are held until what they say has been judged. A window is what has come since
the last question, at least ``WINDOW`` code points of it, and is asked about with the end of what was said
before, so that what lies across two windows is in one of them if it has no more than ``OVERLAP`` code points.
While a question waits the next window fills; one question of a stream waits at a time. What is asked about
holds placeholders; what they stand for is put in behind the verdict.

In full duplex a window is sent on as soon as it is judged; elsewhere with the next chunk. Owned by one
exchange; verdicts come from tasks on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dataplane.extproc.events import BodyTransform, EndBody, LaterBody, Push
from ipp.guardrails.dialects import ALL, Channel, Ending, read
from ipp.guardrails.frames import DONE, Frames, data_of
from ipp.guardrails.shapes import ANSWER
from ipp.guardrails.texts import UnreadableError, decoded, find_texts, path_of
from ipp.guardrails.verdicts import Refusal, Verdict, unreadable

WINDOW: Final = 1000
"""Code points that are asked about at a time, at least; what is left at the end may be less."""
OVERLAP: Final = 200
"""Of what was said before, so much is asked about again."""
MAX_HELD_BYTES: Final = 8 << 20
"""Of events that wait for verdicts."""
MAX_CHANNELS: Final = 1024

Texts = Sequence[tuple[str, str]]
Take = Callable[[Sequence[Verdict], Refusal | None], None]


class _Event(NamedTuple):
    raw: bytes
    value: Any


class _Window:
    """What has come since the last question."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.size = 0
        """Code points."""
        self.texts: dict[Channel, list[str]] = {}
        self.paths: dict[Channel, str] = {}


class AskedStream:
    """Guards one event stream; a ``BodyTransform`` that is ``Pushing``."""

    def __init__(
        self,
        first: BodyTransform | None,
        last: BodyTransform | None,
        ask: Callable[[Texts, Take], None],
        told: Callable[[Sequence[Verdict]], None] | None = None,
    ) -> None:
        """``first`` is what rules make of the stream, ``last`` puts in what placeholders stand for."""
        self._first = first
        self._last = last
        self._ask = ask
        self._told = told
        self._frames = Frames()
        self._window = _Window()
        self._asked: list[_Event] | None = None
        """In the question that waits."""
        self._tails: dict[Channel, str] = {}
        self._held = 0
        self._ready: list[bytes] = []
        self._ending = Ending()
        self._is_over = False
        """Nothing more comes."""
        self._cut: Refusal | None = None
        self._push: Push | None = None
        self._take: Callable[[bytes], None] | None = None

    def attach(self, push: Push) -> None:
        self._push = push

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """What is ready; ``EndBody`` when the stream is cut, ``LaterBody`` when its end waits."""
        is_early = False
        if self._first is not None:
            try:
                chunk = self._first.feed(chunk, end)
            except EndBody as cut:
                chunk, is_early = cut.last, True
        if self._cut is None:
            self._read(chunk, end or is_early)
            self._go_on()
        if self._cut is not None or (is_early and self._asked is None):
            raise EndBody(self._taken())
        if self._is_over and self._asked is not None:
            raise LaterBody(self._wait)
        return self._taken()

    def _wait(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def _taken(self) -> bytes:
        ready, self._ready = b"".join(self._ready), []
        return ready

    def _read(self, chunk: bytes, end: bool) -> None:
        """Take in events."""
        window = self._window
        for raw in self._frames.feed(chunk, end):
            data = data_of(raw)
            value: Any = None
            if data is not None and data.strip() != DONE:
                try:
                    value = decoded(data, is_strict=False)
                    found = find_texts(data, ANSWER)
                except UnreadableError:
                    self._add((), "", data.decode("utf-8", "replace"))
                else:
                    channels = read(value, found.texts).channels
                    for text, channel in zip(found.texts, channels, strict=True):
                        path = path_of(text.keys)
                        self._add(channel or ("alone", path), path, text.read(data))
            self._ending.came(value)
            window.events.append(_Event(raw, value))
            self._held += len(raw)
        self._is_over |= end
        if self._held > MAX_HELD_BYTES or len(window.texts) > MAX_CHANNELS:
            self._refuse(
                unreadable(f"has more than {MAX_HELD_BYTES} bytes that wait for a verdict", "stream")
            )

    def _add(self, channel: Channel, path: str, words: str) -> None:
        if words:
            window = self._window
            window.size += len(words)
            window.texts.setdefault(channel, []).append(words)
            window.paths[channel] = path

    def _go_on(self) -> None:
        """Send on what says nothing, and ask about what is enough for a question."""
        window = self._window
        if self._asked is not None or self._cut is not None:
            return
        if not window.size:
            events, window.events = window.events, []
            self._release(events)
        elif window.size >= WINDOW or self._is_over:
            self._window, self._asked = _Window(), window.events
            texts: list[tuple[str, str]] = []
            for channel, parts in window.texts.items():
                said = self._tails.pop(channel, "") + "".join(parts)
                texts.append((window.paths[channel], said))
                if channel[:1] != ("alone",) and channel != ALL and len(self._tails) < MAX_CHANNELS:
                    self._tails[channel] = said[-OVERLAP:]
            self._ask(texts, self._judged)

    def _judged(self, verdicts: Sequence[Verdict], refusal: Refusal | None) -> None:
        """The question is answered."""
        events, self._asked = self._asked or [], None
        if verdicts and self._told is not None:
            self._told(verdicts)
        if self._cut is not None:
            return
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._release(events)
            self._go_on()
        is_done = self._cut is not None or (self._is_over and self._asked is None)
        if is_done and self._take is not None:
            self._take(self._taken())
        elif self._push is not None:
            self._push(self._taken(), is_done)

    def _release(self, events: Sequence[_Event]) -> None:
        for raw, value in events:
            self._held -= len(raw)
            self._ending.sent(value)
        body = b"".join(event.raw for event in events)
        if self._last is not None:
            body = self._last.feed(body, False)
            if self._is_over and self._asked is None and not self._window.events:
                body += self._last.feed(b"", True)
        self._ready.append(body)

    def _refuse(self, refusal: Refusal) -> None:
        if self._last is not None:
            self._ready.append(self._last.feed(b"", True))
        self._ready.append(self._ending.cut(refusal))
        self._window, self._asked, self._cut = _Window(), None, refusal
