"""Session ids as clients send them, made safe to keep: bounded in length, and no secrets."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from dataplane.headers import COOKIE, Headers

MAX_SESSION_ID_BYTES: Final = 256
"""Longer ids are replaced by their digest, so that different ones stay different."""


def bounded(session: str) -> str:
    """The id itself, or a digest of one that is too long to keep."""
    if len(session) <= MAX_SESSION_ID_BYTES // 4:
        return session
    data = session.encode("utf-8", "surrogateescape")
    return session if len(data) <= MAX_SESSION_ID_BYTES else _digest(data)


def from_header(headers: Headers, name: str) -> str:
    """The session id in a header; empty when there is none."""
    return bounded(headers.get(name).strip())


def from_cookie(headers: Headers, name: str) -> str:
    """The session id in a cookie, as a digest: a cookie may be a secret. Empty when there is none."""
    for header, value in headers:
        if header == COOKIE:
            for pair in value.split(b";"):
                key, _, content = pair.strip().partition(b"=")
                if content and key == name.encode():
                    return _digest(content)
    return ""


def _digest(data: bytes) -> str:
    return f"blake2b:{blake2b(data, digest_size=16).hexdigest()}"
