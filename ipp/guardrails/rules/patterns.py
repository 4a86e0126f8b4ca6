"""Regular expressions of RE2, and texts that must be one of several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import re2

from dataplane.config.guardrails import Patterns
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError
from ipp.guardrails.matches import MAX_STREAM_MATCH, Match
from ipp.guardrails.pattern_length import greatest_length
from ipp.guardrails.scanning import Item, Scanner

MAX_STEPS: Final = 200_000
"""Instructions that the patterns of a rule may compile to; a repetition counts as often as it may come."""


_ANCHORS: Final = re.compile(r"\$|\\[Az]|(?<!\[)\^")
"""What may ask whether a text begins or ends there; written as a plain character it is harmless, but rare."""


class PatternRule:
    """Kinds are ``pattern 0``, ``pattern 1`` and so on, by the place in the list."""

    def __init__(self, parameters: Patterns, *, streaming: bool) -> None:
        """Refuses, for streams, a pattern that can match more than a stream holds back."""
        self.longest: int | None = None
        lengths = [greatest_length(pattern) for pattern in parameters.patterns]
        if streaming:
            raise_any(
                [
                    ConfigError(
                        f"can match {'any number of' if length is None else length} characters, and streams "
                        f"hold back {MAX_STREAM_MATCH}; give its repetitions upper bounds, such as "
                        r"\w{1,64} for \w+, or leave stage stream out",
                        path=f"patterns[{index}]",
                    )
                    for index, length in enumerate(lengths)
                    if length is None or length > MAX_STREAM_MATCH
                ]
            )
            self.longest = max(length or 1 for length in lengths)
        size = sum(re2.compile(pattern).programsize for pattern in parameters.patterns)
        if size > MAX_STEPS:
            raise ConfigError(
                f"take {size} steps together, and {MAX_STEPS} are allowed; lower the numbers of repetitions",
                path="patterns",
            )
        bounded = all(length is not None and length <= MAX_STREAM_MATCH for length in lengths)
        self.is_local = not any(_ANCHORS.search(pattern) for pattern in parameters.patterns)
        self._scanner = Scanner(
            [Item(f"pattern {index}", pattern) for index, pattern in enumerate(parameters.patterns)],
            case_sensitive=parameters.case_sensitive,
            exact=bounded,
        )

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        return self._scanner.find(text, start)
