"""Declares metrics made of plain numbers and writes them in the Prometheus text format.

Writing runs on the event loop that also makes decisions, and a gateway with a thousand tenants has half a
million lines to write. So the text is written here, twenty times faster than through the metric objects of
``prometheus_client``, and in slices between which the caller lets the loop turn. Collectors of
``prometheus_client`` (its process collector) are exposed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from dataplane.observability.numbers import MAX_SERIES, Counter, Family, Gauge, Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

SLICE_SERIES: Final = 100
"""Series written between two chances for the loop to turn; a histogram of them takes about a millisecond."""

Computed: TypeAlias = Callable[[], Iterable[tuple[Sequence[str], float | Histogram]]]
"""Label values and value of every series, at the moment of asking."""

AnyFamily: TypeAlias = Family[Counter] | Family[Gauge] | Family[Histogram]


class Description(NamedTuple):
    """What a metric is called and how its series are told apart."""

    name: str
    kind: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    """Of a histogram's buckets, without infinity."""


class _Computed(NamedTuple):
    name: str
    help: str
    labels: tuple[str, ...]
    read: Computed
    kind: str = "gauge"
    bounds: tuple[float, ...] = ()


class _Twin(NamedTuple):
    """A metric once more, under another name and with some of its labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    source: AnyFamily | _Computed
    positions: tuple[int, ...]
    """Of the labels among the source's."""

    @property
    def kind(self) -> str:
        return self.source.kind


class MetricSet:
    """The metrics of one part of a process; names are full names, ``_total`` of counters included."""

    def __init__(
        self, before_expose: Callable[[], None] | None = None, help_marks: Mapping[str, str] | None = None
    ) -> None:
        self._families: dict[str, AnyFamily | _Computed | _Twin] = {}
        self._before_expose = before_expose
        """Brings the numbers up to date, for whoever keeps some of them aside."""
        self._help_marks = help_marks or {}
        """First part of names -> what their help begins with."""

    def counter(
        self, name: str, help_text: str, labels: Sequence[str] = (), *, max_series: int = MAX_SERIES
    ) -> Family[Counter]:
        """Declare a counter."""
        family = Family(name, help_text, labels, "counter", Counter, max_series)
        self._declare(family)
        return family

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Family[Gauge]:
        """Declare a gauge."""
        family = Family(name, help_text, labels, "gauge", Gauge)
        self._declare(family)
        return family

    def histogram(
        self, name: str, help_text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> Family[Histogram]:
        """Declare a histogram; ``bounds`` rise and do not contain infinity."""
        shared = tuple(bounds)
        family = Family(name, help_text, labels, "histogram", lambda: Histogram(shared))
        self._declare(family)
        return family

    def computed(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str],
        read: Computed,
        *,
        kind: str = "gauge",
        bounds: Sequence[float] = (),
    ) -> None:
        """Declare a metric whose series are read when asked for; those of a histogram with these ``bounds``
        are ``Histogram``.
        """
        self._declare(_Computed(name, help_text, tuple(labels), read, kind, tuple(bounds)))

    def twin(self, name: str, of: str, labels: Mapping[str, str]) -> None:
        """Expose the declared metric ``of`` once more: ``labels`` are the twin's names of the source's labels
        it has. Series that then coincide are added up, when asked for.
        """
        source = self._families[of]
        if isinstance(source, _Twin):
            raise ValueError(f"{of} is a twin itself")
        positions = tuple(source.labels.index(label) for label in labels.values())
        self._declare(_Twin(name, f"Deprecated: use {of}.", tuple(labels), source, positions))

    def describe(self) -> list[Description]:
        """Every declared metric, by name."""
        families = (self._families[name] for name in sorted(self._families))
        return [Description(each.name, each.kind, each.labels, _bounds(each)) for each in families]

    def expose(self) -> Iterator[str]:
        """The text exposition, in slices of at most ``SLICE_SERIES`` series."""
        if self._before_expose is not None:
            self._before_expose()
        for family in list(self._families.values()):
            text = _escape_help(self._mark(family.name) + family.help)
            yield f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"
            lines = _lines(family)
            while block := "".join(islice(lines, SLICE_SERIES)):
                yield block

    def _declare(self, family: AnyFamily | _Computed | _Twin) -> None:
        if family.name in self._families:
            raise ValueError(f"metric {family.name} is declared twice")
        self._families[family.name] = family

    def _mark(self, name: str) -> str:
        return next((mark for start, mark in self._help_marks.items() if name.startswith(start)), "")


def _bounds(family: AnyFamily | _Computed | _Twin) -> tuple[float, ...]:
    source = family.source if isinstance(family, _Twin) else family
    if isinstance(source, _Computed):
        return source.bounds
    number = source.make()
    return tuple(number.bounds) if isinstance(number, Histogram) else ()


def _lines(family: AnyFamily | _Computed | _Twin) -> Iterator[str]:
    if isinstance(family, _Twin):
        return _twin_lines(family)
    return _computed_lines(family) if isinstance(family, _Computed) else _family_lines(family)


def _twin_lines(twin: _Twin) -> Iterator[str]:
    """One item per group of series that look the same to the twin; each is added up when it is its turn."""
    source, groups = twin.source, dict[tuple[str, ...], list[Any]]()
    if isinstance(source, _Computed):
        for values, value in source.read():
            groups.setdefault(tuple(values[i] for i in twin.positions), []).append(value)
    else:
        for labels, number in source.children.items():
            shown = number if isinstance(number, Histogram) else number.value
            groups.setdefault(tuple(labels[i] for i in twin.positions), []).append(shown)
    for values, members in groups.items():
        labels_text = _labels(twin.labels, values)
        if isinstance(members[0], Histogram):
            bounds = [*map(_number, members[0].bounds), "+Inf"]
            yield _histogram_lines(twin.name, labels_text, bounds, _added(members))
        else:
            yield _line(twin.name, labels_text, sum(members))


def _added(histograms: Sequence[Histogram]) -> Histogram:
    total = Histogram(histograms[0].bounds)
    total.counts = [sum(column) for column in zip(*(each.counts for each in histograms), strict=True)]
    total.sum = sum(each.sum for each in histograms)
    return total


def _computed_lines(family: _Computed) -> Iterator[str]:
    for values, value in family.read():
        labels = _labels(family.labels, values)
        if isinstance(value, Histogram):
            bounds = [*map(_number, value.bounds), "+Inf"]
            yield _histogram_lines(family.name, labels, bounds, value)
        else:
            yield _line(family.name, labels, value)


def _family_lines(family: AnyFamily) -> Iterator[str]:
    """One item per series, over the series there are at the start."""
    bounds: list[str] = []
    children: list[tuple[tuple[str, ...], Counter | Gauge | Histogram]] = list(family.children.items())
    for values, number in children:
        labels = _labels(family.labels, values)
        if isinstance(number, Histogram):
            bounds = bounds or [*map(_number, number.bounds), "+Inf"]
            yield _histogram_lines(family.name, labels, bounds, number)
        else:
            yield _line(family.name, labels, number.value)


def _histogram_lines(name: str, labels: str, bounds: Sequence[str], histogram: Histogram) -> str:
    prefix = f'{name}_bucket{{{labels}{"," if labels else ""}le="'
    total = 0
    lines = []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        lines.append(f'{prefix}{bound}"}} {total}\n')
    lines.append(_line(f"{name}_sum", labels, histogram.sum))
    lines.append(_line(f"{name}_count", labels, total))
    return "".join(lines)


def _line(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {_number(value)}\n" if labels else f"{name} {_number(value)}\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = zip(names, values, strict=True)
    return ",".join(f'{name}="{_escape(value)}"' for name, value in pairs)


def _number(value: float) -> str:
    """As Go writes it: whole numbers without a fraction, from a million on with an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if abs(value) < 1e6:
        return str(int(value)) if value == int(value) else repr(float(value))
    text = repr(float(value))
    point = text.find(".")
    if "e" in text or value < 0 or point < 7:
        return text
    digits = (text[1:point] + text[point + 1 :]).rstrip("0")
    return f"{text[0]}{'.' if digits else ''}{digits}e+{point - 1:02d}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
