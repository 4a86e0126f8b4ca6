"""What the data layer knows of endpoints beyond the table's own columns: values by key.

A number is kept in a column (NaN = absent), so that a filter or scorer over a thousand endpoints reads an
array; anything else is kept as an object. Values are written under the key of their producer
(``GPUUtilization/dcgm-extractor``) and under the key without producer, which readers use who do not care.

Owned by the endpoint table: a row's values go when its endpoint leaves, so a slot's next tenant never
inherits them. Written and read on the thread that owns the table.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from itertools import count
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dataplane.plugin.base import DataKey

Floats = NDArray[np.float64]
T = TypeVar("T")

MAX_KEYS: Final = 256
"""Attributes one table holds, each counted with and without its producer; later ones are refused."""


class ObjectColumn:
    """Values that are no numbers, by slot."""

    __slots__ = ("_changes", "values", "version")

    def __init__(self, capacity: int, changes: Iterator[int]) -> None:
        self._changes = changes
        self.values: list[Any] = [None] * capacity
        self.version = next(changes)
        """Rises with every change; what is derived from the values is valid for one version.

        Columns of one table never have the same version, one that takes another's place included.
        """

    def set(self, slot: int, value: Any) -> None:
        """Replace one value; None = absent."""
        if self.values[slot] != value:
            self.values[slot] = value
            self.version = next(self._changes)


class EndpointAttributes:
    """All attributes of one table's endpoints."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._numbers: dict[DataKey[Any], Floats] = {}
        self._objects: dict[DataKey[Any], ObjectColumn] = {}
        self._changes = count(1)

    def numbers(self, key: DataKey[float]) -> Floats | None:
        """The column of a number by slot, NaN where it is absent; None when nobody has written it."""
        return self._numbers.get(key)

    def objects(self, key: DataKey[T]) -> ObjectColumn | None:
        """The column of another value by slot; None when nobody has written it."""
        return self._objects.get(key)

    def get(self, slot: int, key: DataKey[T]) -> T | None:
        """One value; None when it is absent. The slot must belong to a live endpoint."""
        column = self._objects.get(key)
        if column is not None:
            found: T | None = column.values[slot]
            return found
        numbers = self._numbers.get(key)
        if numbers is None:
            return None
        value: Any = float(numbers[slot])
        return None if math.isnan(value) else value

    def put(self, slot: int, key: DataKey[Any], value: Any) -> None:
        """Write one value under its key and the key without producer; None = absent.

        A key keeps the kind of its first value: ``ValueError`` for a number where there were others or the
        reverse, and for more than ``MAX_KEYS`` keys.
        """
        for written in {key, key.by("")}:
            self._write(slot, written, value)

    def _write(self, slot: int, key: DataKey[Any], value: Any) -> None:
        numbers = self._numbers.get(key)
        if numbers is None and key not in self._objects:
            if value is None:
                return
            numbers = self._create(key, is_number=_is_number(value))
        if numbers is None:
            if _is_number(value):
                raise ValueError(f"attribute {key} has values that are no numbers, so {value} is refused")
            self._objects[key].set(slot, value)
        elif value is None:
            numbers[slot] = math.nan
        elif _is_number(value):
            numbers[slot] = value
        else:
            raise ValueError(f"attribute {key} is a number, so a value of another kind is refused")

    def _create(self, key: DataKey[Any], *, is_number: bool) -> Floats | None:
        if len(self._numbers) + len(self._objects) >= MAX_KEYS:
            raise ValueError(f"there are {MAX_KEYS} endpoint attributes, the most that are kept")
        if is_number:
            self._numbers[key] = np.full(self._capacity, math.nan)
            return self._numbers[key]
        self._objects[key] = ObjectColumn(self._capacity, self._changes)
        return None

    def retain(self, keys: Collection[DataKey[Any]]) -> None:
        """Forget every attribute that is not among ``keys``, those without producer included."""
        kept = {*keys, *(key.by("") for key in keys)}
        self._numbers = {key: column for key, column in self._numbers.items() if key in kept}
        self._objects = {key: column for key, column in self._objects.items() if key in kept}

    def clear(self, slot: int) -> None:
        """Forget what is known of one row."""
        for numbers in self._numbers.values():
            numbers[slot] = math.nan
        for column in self._objects.values():
            column.set(slot, None)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        more = capacity - self._capacity
        self._capacity = capacity
        for key, numbers in self._numbers.items():
            self._numbers[key] = np.concatenate((numbers, np.full(more, math.nan)))
        for column in self._objects.values():
            column.values.extend([None] * more)

    def of(self, slot: int) -> dict[str, Any]:
        """All values of one row by the name of their key; those without producer are left out as doubles."""
        found: dict[str, Any] = {}
        for key in (*self._numbers, *self._objects):
            value = self.get(slot, key)
            if key.producer and value is not None:
                found[str(key)] = value
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))
