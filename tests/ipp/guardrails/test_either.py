"""Whether an answer is a stream: said by its first bytes, however they are cut."""

from __future__ import annotations

import pytest

from ipp.guardrails.either import MAX_SPACE, EitherGuard


class Fed:
    """A guard that keeps what it is fed."""

    def __init__(self) -> None:
        self.chunks: list[tuple[bytes, bool]] = []

    def feed(self, chunk: bytes, end: bool) -> bytes:
        self.chunks.append((chunk, end))
        return chunk.upper()


def run(kind, body, size, opened):
    def open_guard(found):
        opened.append(found)
        return Fed() if found == "sse" else None

    guard = EitherGuard(kind, open_guard)
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    return b"".join(guard.feed(piece, at == len(pieces) - 1) for at, piece in enumerate(pieces))


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    ("said", "body", "kind"),
    [
        ("sse", b'data: {"a":1}\n\n', "sse"),
        ("sse", b'\xef\xbb\xbf\n\n {"a":1}', "json"),
        ("sse", b"[1]", "json"),
        ("sse", b": ping\n\n", "sse"),
        ("sse", b"", "sse"),
        ("json", b'{"a":1}', "json"),
        ("json", b"", "json"),
        ("json", b"ok", "json"),
        ("json", b"data", "json"),
        ("json", b"data:1\n\n", "sse"),
        ("json", b"\n\xef\xbb\xbfevent: x\ndata: 1\n\n", "sse"),
        ("json", b": ping\n\n", "sse"),
        ("json", b"id: 1\n\n", "sse"),
        ("json", b"idle talk", "json"),
    ],
)
def test_the_first_bytes_tell(said, body, kind, size):
    opened: list[str] = []
    assert run(said, body, size, opened) == (body.upper() if kind == "sse" else body)
    assert opened == [kind]


@pytest.mark.parametrize("kind", ["sse", "json"])
def test_the_type_is_believed_of_what_says_nothing_for_long(kind):
    opened: list[str] = []
    run(kind, b" " * (MAX_SPACE + 1) + b"x", 1, opened)
    assert opened == [kind]
