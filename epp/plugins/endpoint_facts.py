"""What follows from an endpoint's spec alone (labels, address), kept as columns.

Reading labels costs a dictionary look-up per endpoint, so plugins that decide by labels read each spec once:
they are recomputed for endpoints that came or were relabelled since the table's last version, and for no
others. Owned by one plugin instance and used on the thread that owns the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from epp.interfaces.endpoint import Candidates, EndpointSpec, EndpointTable, Floats, Slots


def shown_label(spec: EndpointSpec, label: str) -> str:
    """A label and its value in words, for people who ask why an endpoint was not considered."""
    value = spec.labels.get(label)
    return f"has no label {label}" if value is None else f"label {label} is {value!r}"


class EndpointFacts:
    """``width`` numbers per endpoint. ``read`` computes them from a spec and must not raise."""

    def __init__(self, read: Callable[[EndpointSpec], Sequence[float]], width: int = 1) -> None:
        self._read = read
        self._width = width
        self._table: EndpointTable | None = None
        self._version = -1
        self._specs: list[EndpointSpec | None] = []
        self._values: Floats = np.zeros((width, 0))

    def of(self, candidates: Candidates) -> Floats:
        """One column per candidate: an array of shape (width, candidates)."""
        table = candidates.table
        if table is not self._table or table.version != self._version:
            self._refresh(table)
        facts: Floats = self._values[:, candidates.slots]
        return facts

    def _refresh(self, table: EndpointTable) -> None:
        if table is not self._table:
            self._table, self._specs, self._values = table, [], np.zeros((self._width, 0))
        missing = table.capacity - len(self._specs)
        if missing:
            self._specs.extend([None] * missing)
            self._values = np.hstack((self._values, np.zeros((self._width, missing))))
        for slot, endpoint in enumerate(table.endpoints):
            spec = None if endpoint is None else endpoint.spec
            if spec is not self._specs[slot]:
                self._specs[slot] = spec
                if spec is not None:
                    self._values[:, slot] = self._read(spec)
        self._version = table.version


class SpecFilter:
    """Keeps the endpoints whose spec passes a test.

    The same candidates give the same result object, so that a request for the whole pool costs one
    comparison, and the narrowed set's endpoints are collected once per version of the table.
    """

    def __init__(self, test: Callable[[EndpointSpec], bool]) -> None:
        self._passes = EndpointFacts(lambda spec: (float(test(spec)),))
        self._last: tuple[Candidates, int, Candidates] | None = None

    def kept(self, candidates: Candidates) -> Candidates:
        """Those that pass; possibly none."""
        version = candidates.table.version
        last = self._last
        if last is not None and last[0] is candidates and last[1] == version:
            return last[2]
        kept = candidates.where(self._passes.of(candidates)[0] > 0)
        self._last = (candidates, version, kept)
        return kept


class SlotsByLabel:
    """Which slots carry which value of a label, worked out once for each version of the table."""

    def __init__(
        self, table: EndpointTable, key: str, test: Callable[[EndpointSpec], bool] = lambda spec: True
    ) -> None:
        self._table = table
        self._key = key
        self._test = test
        self._version = -1
        self._slots: dict[str, Slots] = {}

    @property
    def by_value(self) -> Mapping[str, Slots]:
        """Value -> slots of the endpoints with that value that pass the test; the same object per version."""
        if self._version != self._table.version:
            slots: dict[str, list[int]] = {}
            for endpoint in self._table.all().endpoints:
                value = endpoint.spec.labels.get(self._key)
                if value is not None and self._test(endpoint.spec):
                    slots.setdefault(value, []).append(endpoint.slot)
            self._slots = {value: np.array(found, dtype=np.intp) for value, found in slots.items()}
            self._version = self._table.version
        return self._slots

    def kept(self, candidates: Candidates, value: str) -> Candidates:
        """Those with this value; possibly none."""
        wanted = np.zeros(self._table.capacity, dtype=np.bool_)
        slots = self.by_value.get(value)
        if slots is not None:
            wanted[slots] = True
        return candidates.where(wanted[candidates.slots])
