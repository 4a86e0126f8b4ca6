"""What flags of benchmarks take: each function reads a text, or returns one that does, for argparse."""

import argparse
import math
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from dataplane.units import parse_duration

Number = TypeVar("Number", int, float)


def rate(text: str) -> float:
    """A positive number, or 0 for `auto`."""
    return 0.0 if text == "auto" else above(0.0)(text)


def at_least(least: Number) -> Callable[[str], Number]:
    """A parser of numbers of the type of `least` that are not below it."""
    kind = type(least)

    def number(text: str) -> Number:
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} on")
        return value

    number.__name__ = kind.__name__
    return number


def above(bound: float) -> Callable[[str], float]:
    """A parser of numbers above a bound."""

    def number(text: str) -> float:
        value = float(text)
        if not bound < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number above {bound:g}")
        return value

    number.__name__ = "number"
    return number


def duration(text: str) -> str:
    """A positive duration such as `50ms`, as it is written."""
    try:
        if parse_duration(text) > 0:
            return text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"{text} is not a positive duration")


def numbers(one: Callable[[str], int]) -> Callable[[str], tuple[int, ...]]:
    """A parser of comma-separated numbers."""

    def several(text: str) -> tuple[int, ...]:
        try:
            return tuple(one(word) for word in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from None

    return several


Word = TypeVar("Word", bound=StrEnum)


def listed(kind: type[Word]) -> Callable[[str], tuple[Word, ...]]:
    """A parser of comma-separated members of an enumeration; repeats count once, order is kept."""

    def members(text: str) -> tuple[Word, ...]:
        try:
            return tuple(dict.fromkeys(kind(word.strip()) for word in text.split(",")))
        except ValueError:
            known = ", ".join(kind)
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of: {known}") from None

    return members


def writable_file(text: str) -> Path:
    """A path that can be written to, found out before a long measurement and not after it."""
    path = Path(text)
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    return path
