"""Drive parsers in tests: parse or be refused, read a response in whatever pieces."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from dataplane.errors import BadRequestError
from dataplane.headers import Headers
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import ParsedBody
from epp.interfaces.request_control import ResponseReader
from tests.support.pool import make_plugin

HEADERS = Headers([])


def parse_with(parser: type[Any], path: str, body: Any) -> ParsedBody:
    """What the parser understands of a body, given as data or as bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    parsed: ParsedBody = make_plugin(parser).parse(HEADERS, path, raw)
    return parsed


def refusal_of(parser: type[Any], path: str, body: Any) -> str:
    """The message the parser refuses a body with."""
    with pytest.raises(BadRequestError) as caught:
        parse_with(parser, path, body)
    return caught.value.message


def read_with(parser: type[Any], streaming: bool, *chunks: bytes) -> tuple[Usage | None, int]:
    """Usage and events the parser's reader finds in a response that came in these chunks."""
    reader: ResponseReader = make_plugin(parser).response_reader(streaming)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish(), reader.events


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in pieces."""
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def bytewise(data: bytes) -> list[bytes]:
    """The data in pieces of one byte."""
    return [data[i : i + 1] for i in range(len(data))]
