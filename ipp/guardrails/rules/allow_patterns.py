"""Texts that must be one of several shapes, from their beginning to their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import re2

from dataplane.config.guardrails import AllowPatterns
from ipp.guardrails.matches import Match
from ipp.guardrails.scanning import utf8


class AllowPatternRule:
    """The one kind is ``noPattern``, for the whole text."""

    longest = None

    def __init__(self, parameters: AllowPatterns) -> None:
        options = re2.Options()
        options.case_sensitive, options.log_errors = parameters.case_sensitive, False
        self._compiled: list[Any] = [
            re2.compile(pattern.encode(), options) for pattern in parameters.patterns
        ]

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        raw = utf8(text)
        if start >= len(text) or any(pattern.fullmatch(raw) is not None for pattern in self._compiled):
            return []
        return [Match(start, len(text), "noPattern")]
