"""What a server answers when it has rendered prompts."""

import json
from typing import Any

import pytest

from epp.plugins.rendered_prompt import read_rendered


def test_one_prompt_and_several():
    assert read_rendered(b'{"token_ids": [1, 2], "model": "m", "features": null}') == [[1, 2]]
    assert read_rendered(b'[{"token_ids": [1]}, {"token_ids": []}]') == [[1], []]


def test_media_are_told_apart_by_their_hashes():
    def rendered(digest: str) -> list[int]:
        features = {
            "mm_hashes": {"image": [digest]},
            "mm_placeholders": {"image": [{"offset": 1, "length": 2}]},
        }
        (tokens,) = read_rendered(json.dumps({"token_ids": [7, 99, 99, 8], "features": features}).encode())
        return tokens

    one, other = rendered("cat"), rendered("dog")
    assert (one[0], one[3]) == (7, 8)
    assert one[1] == one[2] not in (99, other[1])
    assert rendered("cat") == one


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"token_ids": "x"}',
        b'{"token_ids": [-1]}',
        b'{"token_ids": [4294967296]}',
        b"[" * 5000,
    ],
)
def test_other_answers_are_refused(answer: Any):
    with pytest.raises(ValueError, match="it holds no prompt"):
        read_rendered(answer)
