"""Bodies of requests: one JSON or YAML value, whatever the content type calls it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, Final

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from dataplane.config.document import read_document
from dataplane.config.documents import split_documents
from dataplane.errors import ConfigError

MAX_SHOWN: Final = 100
"""Characters of a key that a refusal repeats."""


class DocumentParser(BaseParser):
    """JSON, and YAML where the content type says so; several YAML documents are a list."""

    media_type = "*/*"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The value. ``ParseError`` says where the text stops making sense."""
        try:
            text = stream.read().decode()
        except UnicodeDecodeError as error:
            raise ParseError(f"the body is not UTF-8 (byte {error.start})") from None
        if "yaml" in (media_type or ""):
            return _yaml(text)
        try:
            return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the body is not JSON: {error}") from None


def _yaml(text: str) -> Any:
    found = []
    for document in split_documents(text):
        problems: list[ConfigError] = []
        found.append(read_document(document.text, problems))
        if problems:
            raise ParseError(f"{document.place}: {problems[0]}")
    return found[0] if len(found) == 1 else found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Nothing of a body is dropped in silence, so a key that is repeated is refused."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:MAX_SHOWN]!r} occurs twice in one object; remove one")
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")
