"""Which parser understands the body of a path.

A parser claims path suffixes on whole segments; the longest claim wins, then the parser listed first. Paths
nobody claims go to the first parser without claims. Decided paths are remembered, up to a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataplane.errors import BadRequestError
from epp.interfaces.request_control import Parser

MAX_REMEMBERED_PATHS: Final = 1024
"""The memory starts over beyond, so that made-up paths cannot fill it for good."""

MAX_REMEMBERED_PATH_BYTES: Final = 256


class ParserTable:
    """The configured parsers, in order of preference."""

    def __init__(self, parsers: Sequence[Parser]) -> None:
        self.parsers = tuple(parsers)
        self._by_suffix: dict[str, Parser] = {}
        self._fallback = next((parser for parser in parsers if not parser.claims), None)
        self._longest = 0
        self._by_path: dict[str, Parser] = {}
        for parser in parsers:
            for claim in parser.claims:
                self._by_suffix.setdefault(claim.strip("/"), parser)
                self._longest = max(self._longest, claim.strip("/").count("/") + 1)

    def find(self, path: str) -> Parser:
        """The parser of a path. ``BadRequestError`` when nobody claims it and there is no fallback."""
        parser = self._by_path.get(path)
        if parser is None:
            parser = self._search(path)
            if len(path) <= MAX_REMEMBERED_PATH_BYTES:
                if len(self._by_path) >= MAX_REMEMBERED_PATHS:
                    self._by_path.clear()
                self._by_path[path] = parser
        return parser

    def _search(self, path: str) -> Parser:
        segments = path.partition("?")[0].strip("/").split("/")
        for count in range(min(self._longest, len(segments)), 0, -1):
            parser = self._by_suffix.get("/".join(segments[-count:]))
            if parser is not None:
                return parser
        if self._fallback is None:
            known = ", ".join(sorted(self._by_suffix))
            raise BadRequestError(
                f"no parser registered matching path suffix for: {path[:200]}; known: {known}"
            )
        return self._fallback
