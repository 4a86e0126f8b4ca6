"""Texts and bodies in pieces, with every match in its place and nothing lost."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.policies.pages.marks import MAX_DEPTH, Piece, numbered, of_body, of_text
from ipp.guardrails.verdicts import Verdict


def verdict(start: int = 0, end: int = 0, path: str = "t", action: str = "flag") -> Verdict:
    named = {"policy": "p", "rule": "r", "type": "keywords", "kind": "word 0", "stage": "request"}
    return Verdict(**named, action=action, path=path, start=start, end=end)  # type: ignore[arg-type]


def shown(pieces: list[Piece]) -> list[tuple[str, list[int], list[int], str]]:
    return [(piece.text, piece.hits, piece.begins, piece.action) for piece in pieces]


def test_matches_that_lie_in_one_another_are_all_told_and_the_strongest_shows() -> None:
    hits = numbered([verdict(2, 6, action="mask"), verdict(4, 5, action="block"), verdict(6, 7)])
    assert shown(of_text("0123456789", hits)) == [
        ("01", [], [], ""),
        ("23", [1], [1], "mask"),
        ("4", [1, 2], [2], "block"),
        ("5", [1], [], "mask"),
        ("6", [3], [3], "flag"),
        ("789", [], [], ""),
    ]


def test_what_nobody_sees_is_written_out() -> None:
    found = of_text("a\u200bb\n\U000e0041", numbered([verdict(1, 2)]))
    assert [(piece.text, piece.is_unseen, piece.hits) for piece in found] == [
        ("a", False, []),
        ("U+200B", True, [1]),
        ("b\n", False, []),
        ("U+E0041", True, []),
    ]


@given(
    st.text("ab\u200b", max_size=12),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=4),
)
def test_no_character_is_lost_and_none_is_marked_that_no_match_has(
    text: str, spans: list[tuple[int, int]]
) -> None:
    hits = numbered([verdict(*span) for span in spans])
    at = 0
    for piece in of_text(text, hits):
        size = 1 if piece.is_unseen else len(piece.text)
        assert piece.text == (f"U+{ord(text[at]):04X}" if piece.is_unseen else text[at : at + size])
        for place in range(at, at + size):
            inside = [hit.number for hit in hits if hit.verdict.start <= place < hit.verdict.end]
            assert piece.hits == inside
        at += size
    assert at == len(text)


def test_a_body_is_json_with_matches_in_values_and_whole_fields_at_their_keys() -> None:
    body = {"max_tokens": 9, "messages": [{"content": 'say "no"\n'}], "odd key": True, "empty": []}
    hits = numbered(
        [
            verdict(path="max_tokens"),
            verdict(4, 8, path="messages[0].content", action="block"),
            verdict(0, 4, path="*"),
        ]
    )
    found = of_body(body, hits)
    assert json.loads("".join(piece.text for piece in found)) == body
    assert [(piece.text, piece.action) for piece in found if piece.hits] == [
        ('"max_tokens"', "flag"),
        ('\\"no\\"', "block"),
        ("true", "flag"),
    ]


def test_a_body_of_any_depth_can_be_shown() -> None:
    body: Any = "deep"
    for _ in range(MAX_DEPTH * 5):
        body = [body]
    assert "…" in "".join(piece.text for piece in of_body(body, []))
