"""What waits in a stream: texts that go on from event to event, and the events that have parts of them."""

from __future__ import annotations

from collections import deque
from typing import Any

from dataplane.payload.json_text import STRING
from ipp.guardrails.dialects import Channel, Reading, is_media
from ipp.guardrails.finding import Finder, Found, Region
from ipp.guardrails.texts import Keys, Text, Texts, unquoted


class GoingText:
    """A text that goes on from event to event."""

    __slots__ = (
        "_base",
        "_before",
        "_regions",
        "_said",
        "finder",
        "key",
        "last",
        "model",
        "queued",
        "sent",
        "torn",
        "total",
    )

    def __init__(self, key: Channel, finder: Finder) -> None:
        self.key = key
        self.finder = finder
        self._said = ""
        self._base = 0
        self._before = 0
        """Code points at its beginning that have been sent before."""
        self._regions: deque[Region] = deque()
        self.total = 0
        """Code points that have come."""
        self.sent = 0
        """Of those, how many have been sent, or replaced."""
        self.last = ""
        """What the event before said."""
        self.torn: Found | None = None
        """A find that is to be masked, and of which a part has been sent before."""
        self.queued = 0
        """Events in the queue that have a part of it."""
        self.model: tuple[Any, Text] | None = None
        """Data of an event that has a part of it, and which part."""

    def go_on_after(self, tail: str) -> None:
        """It has begun before, and said this last, which has been sent and is no news."""
        self._before = self.sent = len(tail)
        self.feed(tail, False)

    def _leave_out_before(self) -> None:
        """Keep what is found in what is news; nothing can be masked of which a part has been sent."""
        finder, before = self.finder, self._before
        finder.found = [found for found in finder.found if found.end > before]
        if any(region.start < before < region.end for region in finder.regions):
            self.torn = next((found for found in finder.found if found.start < before), None)
        finder.regions = [region for region in finder.regions if region.start >= before]

    def tail(self, size: int) -> str:
        """The last that it has said."""
        return self._said[max(self.total - size, self._base) - self._base :]

    def feed(self, piece: str, end: bool) -> None:
        self._said += piece
        self.total += len(piece)
        finder = self.finder
        finder.feed(piece, end)
        if self._before:
            self._leave_out_before()
        if finder.regions:
            self._regions.extend(finder.regions)
            finder.regions = []

    def take(self, upto: int) -> str:
        """What is sent of the text up to there, as far as it is certain."""
        upto = min(upto, self.finder.frontier)
        pieces: list[str] = []
        base, regions = self._base, self._regions
        while self.sent < upto:
            region = regions[0] if regions and regions[0].start < upto else None
            if region is None:
                pieces.append(self._said[self.sent - base : upto - base])
                self.sent = upto
            else:
                regions.popleft()
                pieces += (self._said[self.sent - base : region.start - base], region.text)
                self.sent = region.end
        if self.sent - base > 1024:
            self._said = self._said[self.sent - base :]
            self._base = self.sent
        return "".join(pieces)


class WaitingEvent:
    """An event that waits."""

    __slots__ = ("data", "edits", "found", "is_overdue", "keys", "parts", "raw", "value")

    def __init__(self, raw: bytes, data: bytes, value: Any, found: Texts | None) -> None:
        self.raw = raw
        self.data = data
        self.value = value
        self.found = found
        self.parts: list[tuple[GoingText, int, Text, str]] = []
        """Parts of texts that go on: up to where in the whole, the token, and what it says."""
        self.edits: list[tuple[int, int, bytes]] = []
        """Of texts that stand for themselves."""
        self.keys: list[Keys] = []
        """The fields that change."""
        self.is_overdue = False

    def is_ready(self) -> bool:
        return all(upto <= text.finder.frontier or upto <= text.sent for text, upto, _, _ in self.parts)


class Speaking:
    """Which texts of a choice go on: those of the last event that had any, which may be several at once."""

    __slots__ = ("_before", "_event", "_now")

    def __init__(self) -> None:
        self._event: WaitingEvent | None = None
        self._now: set[Channel] = set()
        self._before: set[Channel] = set()

    def is_news(self, event: WaitingEvent, key: Channel) -> bool:
        """Note that a text goes on in an event; whether it is another than in the one before."""
        if event is not self._event:
            self._event = event
            self._before, self._now = self._now, {key}
            return key not in self._before
        self._now.add(key)
        return key not in self._before


class Alike:
    """An event that others are like but for one text: nearly all of a stream, which need not be read anew."""

    __slots__ = ("_head", "_place", "_tail", "event", "key")

    def __init__(self, event: WaitingEvent, place: Text, key: Channel) -> None:
        self.event = event
        self.key = key
        self._place = place
        self._head = event.data[: place.start]
        self._tail = event.data[place.end :]

    @classmethod
    def of(cls, event: WaitingEvent, reading: Reading) -> Alike | None:
        """None when the event says more than one text that goes on."""
        found = event.found
        if found is None or found.repeats or found.details or reading.ends or len(found.texts) != 1:
            return None
        key = reading.channels[0]
        if key is None or is_media(event.value, found.texts[0]):
            return None
        return cls(event, found.texts[0], key)

    def words_of(self, data: bytes) -> tuple[Text, str] | None:
        """The text in an event with this data, and what it says; None when the event is another."""
        if not data.startswith(self._head) or not data.endswith(self._tail):
            return None
        start, end = len(self._head), len(data) - len(self._tail)
        if STRING.fullmatch(data, start, max(start, end)) is None:
            return None
        place = self._place
        try:
            return Text(place.keys, place.kind, start, end), unquoted(data[start:end])
        except ValueError:
            return None
