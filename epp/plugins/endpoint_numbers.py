"""Which number of the endpoints' attributes a plugin reads, as its parameters name it.

An attribute is named by what it is and, where several producers leave it, by the instance that does. The
name is not split at a slash: who means a producer says so, because an attribute may have one in its name.
"""

from __future__ import annotations

import numpy as np

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import Candidates, Floats


def number_key(attribute: str, producer: str | None, field: str) -> DataKey[float]:
    """The key; ``producer`` None or empty = whoever leaves the attribute. ``ConfigError`` at ``field``."""
    if not attribute:
        raise ConfigError("is empty; name an attribute that a data source leaves on endpoints", path=field)
    if producer is None and "/" in attribute:
        name, _, instance = attribute.rpartition("/")
        raise ConfigError(
            f"{attribute!r} has a slash and no producer; write {field}: {name} and producer: {instance}, "
            'or producer: "" if the slash belongs to the name',
            path=field,
        )
    return DataKey(attribute, producer or "", float)


def numbers_of(key: DataKey[float], candidates: Candidates) -> Floats:
    """The attribute of each candidate, NaN where it is absent."""
    column = candidates.table.attributes.numbers(key)
    if column is None:
        return np.full(len(candidates), np.nan)
    values: Floats = column[candidates.slots]
    return values
