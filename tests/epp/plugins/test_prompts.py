"""What parsers share: token ids are checked, limits and salts are read alike."""

import pytest

from dataplane.errors import BadRequestError
from epp.plugins.prompts import check_tokens, output_limit, salted, token_list_bytes


def test_token_ids_are_32_bit_numbers():
    check_tokens([], "x")
    check_tokens([0, (1 << 32) - 1], "x")
    for tokens in ([-1], [1 << 32]):
        with pytest.raises(BadRequestError, match="x has a token id outside 0 to 4294967295"):
            check_tokens(tokens, "x")
    assert token_list_bytes([1, 258]) == b"\1\0\0\0\2\1\0\0"


def test_negative_limits_are_none():
    assert [output_limit(tokens) for tokens in (None, -1, 0, 5)] == [None, None, 0, 5]


def test_media_are_part_of_the_salt():
    assert salted("a", b"") == "a"
    assert salted("a", b"x") != salted("a", b"y")
    assert salted("a", b"x").startswith("a/")
