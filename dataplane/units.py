"""Durations and quantities as text, the way Go and Kubernetes write them.

Flags, plugin parameters and configuration files of the field say ``250ms``, ``1m30s``, ``16Mi`` or ``500M``.
Both readers refuse what they do not understand with a message that shows the notation.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

_DURATION_UNITS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "\u00b5s": Decimal("1e-6"),
    "\u03bcs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
"""Micro is written with three different characters, all of which Go reads."""

_DURATION_PART: Final = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
)

MAX_DURATION_S: Final = 10 * 365 * 86_400.0
"""Longest duration accepted; beyond it timers overflow and a typing error is likelier than a wish."""

_QUANTITY: Final = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE]\+?[0-9]{1,2})?"
)

_QUANTITY_SUFFIXES: Final = {
    "": Decimal(1),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(1 << 10),
    "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30),
    "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50),
    "Ei": Decimal(1 << 60),
}


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as ``50ms``, ``1m30s``, ``-2s`` or ``0``; else ``ValueError``."""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if body == "0":
        return 0.0
    position, total = 0, Decimal(0)
    while part := _DURATION_PART.match(body, position):
        total += Decimal(part[1]) * _DURATION_UNITS[part[2]]
        position = part.end()
    if position == 0 or position != len(body):
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 50ms, 2s or 1m30s")
    if total > MAX_DURATION_S:
        raise ValueError(f"{text!r} is longer than ten years")
    return sign * float(total)


def parse_quantity(text: str) -> int:
    """The whole number a Kubernetes quantity such as ``16Mi``, ``500M`` or ``100`` stands for, rounded up.

    A trailing ``B`` (``16MiB``) is tolerated. ``ValueError`` for other text, negative numbers included.
    """
    match = _QUANTITY.fullmatch(text.removesuffix("B"))
    if match is None:
        raise ValueError(
            f"{text!r} is not a quantity; write a number with an optional suffix, such as 16Mi or 500M"
        )
    number, suffix = Decimal(match[1]), match[2] or ""
    exponent = suffix[:1] in {"e", "E"} and len(suffix) > 1 and suffix != "Ei"
    scale = Decimal(10) ** int(suffix[1:]) if exponent else _QUANTITY_SUFFIXES[suffix]
    value = number * scale
    if value >= 1 << 63:
        raise ValueError(f"{text!r} is more than 2^63-1")
    return math.ceil(value)
