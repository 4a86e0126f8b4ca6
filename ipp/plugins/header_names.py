"""Names and values of headers that plugins write."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from dataplane.errors import BadRequestError, ConfigError

MAX_VALUE_BYTES: Final = 4096
"""Longer values would let a body fill a server's header limit."""

HeaderName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
"""To be checked with ``check_header_name``."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)

_ILLEGAL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check_header_name(name: str, path: str = "headerName") -> None:
    """``ConfigError`` for what is no name of a header that may be set."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name[:60]!r} is no name of a header", path=path)


def header_value(text: str) -> str:
    """The text as a header's value. ``BadRequestError`` when it cannot be one."""
    if _ILLEGAL.search(text):
        raise BadRequestError("a field that becomes a header holds control characters")
    if len(text) * 4 > MAX_VALUE_BYTES and len(text.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
        raise BadRequestError(f"a field that becomes a header is longer than {MAX_VALUE_BYTES} bytes")
    return text.encode("utf-8", "replace").decode().strip()
