"""Picks single series out of a Prometheus text without reading the rest of it.

A model server's metrics page has hundreds of lines and a picker needs five of them, thousands of times a
second. So a ``Series`` remembers where its lines stood in the previous page and what preceded them; when the
same bytes stand there again (or a little further on, since numbers change their length) they are read in
place, else it searches. What a page says decides, never what was remembered: positions are verified by
comparing the name, the labels and the line before.

The page comes from a server that is not trusted: work per page is bounded, values must be finite numbers,
and anything that cannot be read is absent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_SERIES_OF_A_NAME: Final = 5000
"""Series of one name that are looked at in one page; later ones are ignored."""

MAX_LINE: Final = 8192
"""Bytes of a line that is read; a longer one is absent."""

MAX_LEARNED_BYTES: Final = 65_536
"""Bytes of labels not seen before that are read in one page; lines beyond wait for the next page."""

MAX_KNOWN_LABELS: Final = 5000
MAX_KNOWN_BYTES: Final = 1 << 20
"""Label texts one reader remembers the meaning of, before it starts afresh."""

MAX_COMMENT: Final = 1024
"""A longer line before the series is not used to recognise the place."""

NEARBY: Final = 512
"""How far, in bytes, a series is looked for around its previous place before the whole page is searched."""

ABSENT_PAGES: Final = 10
"""An optional series that is absent is looked for again in every so many pages only."""

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:.]*"
_SPEC: Final = re.compile(rf"\s*({_NAME})\s*(?:\{{(.*)\}})?\s*", re.DOTALL)
_SPEC_LABEL: Final = re.compile(rf'\s*({_NAME})\s*=\s*(?:"([^"]*)"|([^",{{}}]*?))\s*(?:,|$)')
_LABEL: Final = re.compile(
    rb'[ \t,]*([a-zA-Z_:][a-zA-Z0-9_:.]*)[ \t]*=[ \t]*"([^"\\\n]*(?:\\[^\n][^"\\\n]*)*)"'
)
_LABELS_END: Final = re.compile(rb"[ \t,]*\}")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class SeriesSpec(NamedTuple):
    """Names a series: the metric and label values it must have; other labels may be anything."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> SeriesSpec:
        """Read ``name`` or ``name{label=value,...}``; ``ValueError`` says what is wrong with other text."""
        match = _SPEC.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a metric; write name or name{{label=value,...}}")
        labels: list[tuple[str, str]] = []
        inside, position = (match[2] or "").strip(), 0
        while position < len(inside):
            label = _SPEC_LABEL.match(inside, position)
            if label is None:
                raise ValueError(f"{text!r}: {inside[position:]!r} is not a label; write label=value")
            labels.append((label[1], label[2] if label[2] is not None else label[3]))
            position = label.end()
        return cls(match[1], tuple(labels))

    def __str__(self) -> str:
        inside = ",".join(f"{name}={value}" for name, value in self.labels)
        return f"{self.name}{{{inside}}}" if inside else self.name


class Series:
    """Reads one series from successive pages of one server.

    When several series match, the one with the newest timestamp counts, the first among equals (a series
    without a timestamp is as old as can be); with ``newest_by_value`` the value is the timestamp.
    """

    __slots__ = (
        "_absent",
        "_by_value",
        "_head",
        "_head_at",
        "_known",
        "_known_bytes",
        "_name",
        "_needles",
        "_only",
        "_optional",
        "_wanted",
        "labels",
        "skipped",
    )

    def __init__(self, spec: SeriesSpec, *, optional: bool = False, newest_by_value: bool = False) -> None:
        name = spec.name.encode()
        self._name = name
        self._needles = (b"\n" + name + b"{", b"\n" + name + b" ")
        self._wanted = dict(spec.labels)
        self._optional = optional
        self._by_value = newest_by_value
        self._absent = 0
        """Pages still to pass before an absent optional series is looked for."""
        self._head = b""
        """The line before the first series, its line end, and the name."""
        self._head_at = 0
        self._only = b""
        """Label text and blank of the series if it is the only one of its name, else empty."""
        self._known: dict[bytes, Mapping[str, str] | None] = {}
        """Label text -> labels; None when they are not the wanted ones."""
        self._known_bytes = 0
        self.labels: Mapping[str, str] = {}
        """Labels of the series read last; the same object as long as they are the same."""
        self.skipped = False
        """Whether the last page was not searched, because the series was absent shortly before."""

    def read(self, page: bytes) -> float | None:
        """The value, or None when the page has no such series with a finite value."""
        self.skipped = self._absent > 0
        if self.skipped:
            self._absent -= 1
            return None
        at = self._locate(page)
        if at >= 0:
            value = self._read_only(page, at) if self._only else None
            return self._read_all(page, at) if value is None else value
        if self._optional:
            self._absent = ABSENT_PAGES - 1
        return None

    def _locate(self, page: bytes) -> int:
        """Index just after the name of the first series; -1 when there is none."""
        head, at = self._head, self._head_at
        if head:
            if not page.startswith(head, at):
                at = page.find(head, max(0, at - NEARBY), at + NEARBY + len(head))
            if at >= 0 and page[(end := at + len(head)) : end + 1] in (b"{", b" "):
                self._head_at = at
                return end
        return self._search(page)

    def _search(self, page: bytes) -> int:
        """Find the first series in the whole page and remember its surroundings."""
        name = self._name
        if page.startswith((name + b"{", name + b" ")):
            self._head = b""
            return len(name)
        found = [at for needle in self._needles if (at := page.find(needle)) >= 0]
        if not found:
            self._head = b""
            return -1
        line_end = min(found)
        end = line_end + 1 + len(name)
        before = page.rfind(b"\n", max(0, line_end - MAX_COMMENT), line_end) + 1
        recognisable = page.startswith(b"#", before) and line_end - before <= MAX_COMMENT
        self._head, self._head_at = (page[before:end], before) if recognisable else (b"", 0)
        return end

    def _read_only(self, page: bytes, at: int) -> float | None:
        """The fast way: the same single series as in the page before."""
        only = self._only
        if not page.startswith(only, at):
            return None
        start = at + len(only)
        stop = page.find(b"\n", start, start + 64)
        if stop < 0 or page.startswith(self._needles, stop):
            return None
        try:
            value = float(page[start:stop])
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    def _read_all(self, page: bytes, at: int) -> float | None:
        """The thorough way: every series of the name."""
        best: float | None = None
        newest = -math.inf
        count = learned = 0
        only = b""
        while count < MAX_SERIES_OF_A_NAME:
            count += 1
            stop = page.find(b"\n", at)
            if stop < 0:
                stop = len(page)
            end, labels = at, None
            if stop - at <= MAX_LINE:
                end = page.rfind(b"}", at, stop) + 1 or at
                labels = self._known.get(page[at:end], _UNKNOWN)
                if labels is _UNKNOWN:
                    learned += stop - at
                    end = _labels_end(page, at, stop) if learned <= MAX_LEARNED_BYTES else -1
                    labels = self._learn(page[at:end]) if end >= 0 else None
            if labels is not None:
                value, timestamp = _sample(page[end:stop])
                age = value if self._by_value else timestamp
                if math.isfinite(value) and (best is None or age > newest):
                    best, newest, self.labels = value, age, labels
                    only = page[at:end] + b" "
            if not page.startswith(self._needles, stop):
                break
            at = stop + 1 + len(self._name)
        self._only = only if count == 1 else b""
        return best

    def _learn(self, text: bytes) -> Mapping[str, str] | None:
        """The labels that ``text`` says, None when they are not the wanted ones."""
        labels = _parse_labels(text)
        wanted = all(labels.get(name) == value for name, value in self._wanted.items())
        meaning = labels if wanted else None
        self._known_bytes += len(text)
        if len(self._known) >= MAX_KNOWN_LABELS or self._known_bytes > MAX_KNOWN_BYTES:
            self._known.clear()
            self._known_bytes = len(text)
        self._known[text] = meaning
        return meaning


_UNKNOWN: Final[Mapping[str, str]] = {}


def _sample(text: bytes) -> tuple[float, float]:
    """Value and timestamp of what follows the labels; not a number when it cannot be read."""
    try:
        return float(text), -math.inf
    except ValueError:
        words = text.split(b"#", 1)[0].split()  # an exemplar may follow
    try:
        value, timestamp = map(float, words if len(words) == 2 else (*words, b"-inf"))
    except ValueError:
        return math.nan, math.nan
    return (math.nan, math.nan) if math.isnan(timestamp) else (value, timestamp)


def _labels_end(page: bytes, at: int, stop: int) -> int:
    """Index after the labels of the line whose name ends at ``at``; -1 when they are malformed."""
    if not page.startswith(b"{", at):
        return at
    position = at + 1
    while label := _LABEL.match(page, position, stop):
        position = label.end()
    close = _LABELS_END.match(page, position, stop)
    return close.end() if close else -1


def _parse_labels(text: bytes) -> dict[str, str]:
    """Labels by name, escapes undone. ``text`` is empty or a well-formed ``{...}``."""
    labels: dict[str, str] = {}
    position = 1
    while label := _LABEL.match(text, position):
        labels[label[1].decode()] = _ESCAPE.sub(_unescape, label[2].decode("utf-8", "replace"))
        position = label.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    character: str = match[1]
    return "\n" if character == "n" else character
