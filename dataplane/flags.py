"""Command-line flags as the field's Go programs take them, so that their manifests work unchanged.

``--name=value``, ``--name value``, ``--flag`` and ``--flag=false`` for switches, the same with one dash, and
``-v=4``. The last of repeated flags counts, lists add up. Nothing is ignored: an unknown flag, a leftover
word or a value that cannot be read is a ``ConfigError`` at that flag, and says what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dataplane.errors import ConfigError, did_you_mean
from dataplane.units import parse_duration, parse_quantity

MAX_VALUE_SHOWN: Final = 60


class Kind(StrEnum):
    """What a flag's value is; also how the help calls it."""

    TEXT = "text"
    SWITCH = "true|false"
    NUMBER = "number"
    DURATION = "duration"
    QUANTITY = "quantity"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. ``removed`` is the reason why a flag of former releases is refused."""

    name: str
    kind: Kind
    default: str
    help: str
    short: str = ""
    removed: str = ""

    def read(self, text: str) -> Any:
        """The value that ``text`` stands for; ``ConfigError`` at this flag when it is none."""
        try:
            return _READERS[self.kind](text)
        except ValueError as error:
            raise ConfigError(str(error), path=f"--{self.name}") from error


def parse_flags(flags: Sequence[Flag], argv: Sequence[str]) -> dict[str, Any]:
    """Values of the flags that ``argv`` gives, by name; defaults are not filled in."""
    by_name = {flag.name: flag for flag in flags}
    by_short = {flag.short: flag for flag in flags if flag.short}
    given: dict[str, Any] = {}
    words = list(reversed(argv))
    switch = ""
    while words:
        word = words.pop()
        if not word.startswith("-") or word in {"-", "--"}:
            raise _leftover(word, switch)
        flag, text = _split(word, by_name, by_short)
        if flag.removed:
            raise ConfigError(f"was removed: {flag.removed}", path=f"--{flag.name}")
        if text is None:
            text = "true" if flag.kind is Kind.SWITCH else _next_value(flag, words)
        switch = flag.name if flag.kind is Kind.SWITCH else ""
        value = flag.read(text)
        given[flag.name] = (*given.get(flag.name, ()), *value) if flag.kind is Kind.LIST else value
    return given


def _split(word: str, by_name: Mapping[str, Flag], by_short: Mapping[str, Flag]) -> tuple[Flag, str | None]:
    """The flag a word names and the value it carries, None when it carries none."""
    body = word.removeprefix("-").removeprefix("-")
    name, equals, text = body.partition("=")
    if name in by_name:
        return by_name[name], text if equals else None
    if not word.startswith("--") and body[:1] in by_short:
        rest = body[1:].removeprefix("=")
        return by_short[body[0]], rest or None
    known = [f"--{flag.name}" for flag in by_name.values() if not flag.removed]
    dashed = f"--{name}"
    raise ConfigError(f"unknown flag {dashed}{did_you_mean(dashed.replace('_', '-'), known)}")


def _next_value(flag: Flag, words: list[str]) -> str:
    if not words or words[-1].startswith("--"):
        raise ConfigError(f"needs a value; write --{flag.name}=<{flag.kind}>", path=f"--{flag.name}")
    return words.pop()


def _leftover(word: str, switch: str) -> ConfigError:
    if switch and word.lower() in {"true", "false"}:
        return ConfigError(f"a switch takes its value with =; write --{switch}={word}", path=f"--{switch}")
    return ConfigError(f"unexpected argument {_shown(word)}; flags begin with --")


def _switch(text: str) -> bool:
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError(f"{_shown(text)} is neither true nor false")


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError(f"{_shown(text)} is not a whole number")
    return int(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_VALUE_SHOWN else f"{text[:MAX_VALUE_SHOWN]}...")


_READERS: Final[Mapping[Kind, Callable[[str], Any]]] = {
    Kind.TEXT: str,
    Kind.SWITCH: _switch,
    Kind.NUMBER: _number,
    Kind.DURATION: parse_duration,
    Kind.QUANTITY: parse_quantity,
    Kind.LIST: _list,
}
