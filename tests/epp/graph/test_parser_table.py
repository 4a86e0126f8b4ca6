"""A path's parser: whole segments, longest claim, then order; bounded memory."""

from collections.abc import Sequence

import pytest

from dataplane.errors import BadRequestError
from epp.graph import parser_table
from epp.graph.parser_table import ParserTable


class Claims:
    """A parser of some paths."""

    def __init__(self, *claims: str) -> None:
        self.claims: Sequence[str] = claims

    def parse(self, headers: object, path: str, body: bytes) -> None: ...

    def response_reader(self, streaming: bool) -> None: ...


CHAT = Claims("chat/completions")
TEXT = Claims("completions", "embeddings")
LATE = Claims("embeddings", "score")
ANY = Claims()
LATER = Claims()


@pytest.mark.parametrize(
    ("path", "parser"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions/", CHAT),
        ("/v1/chat/completions?stream=1", CHAT),
        ("chat/completions", CHAT),
        ("/v1/completions", TEXT),
        ("/v1/xcompletions", ANY),
        ("/v1/xchat/completions", TEXT),
        ("/v1/completions/render", ANY),
        ("/v1/embeddings", TEXT),
        ("/score", LATE),
        ("/", ANY),
        ("", ANY),
        ("/" + "a/" * 5000 + "score", LATE),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_the_longest_claim_on_whole_segments_wins(path: str, parser: Claims):
    table = ParserTable([CHAT, TEXT, ANY, LATE, LATER])  # type: ignore[list-item]
    assert table.find(path) is parser
    assert table.find(path) is parser


def test_without_fallback_unclaimed_paths_are_refused():
    table = ParserTable([CHAT, TEXT])  # type: ignore[list-item]
    with pytest.raises(BadRequestError) as caught:
        table.find("/v2/rerank")
    assert caught.value.message == (
        "no parser registered matching path suffix for: /v2/rerank; "
        "known: chat/completions, completions, embeddings"
    )


def test_made_up_paths_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parser_table, "MAX_REMEMBERED_PATHS", 8)
    table = ParserTable([ANY])  # type: ignore[list-item]
    for i in range(100):
        table.find(f"/{i}")
        table.find("/" + "x" * 300 + str(i))
    assert len(table._by_path) <= 8
