"""Where strings end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.payload.json_text import STRING, string_end

pieces = st.lists(st.sampled_from(['"', "\\", '\\"', "a", "\n", "é", '"' * 12, "\\" * 7]), max_size=20)


@given(pieces.map("".join), st.text(max_size=5))
def test_a_string_ends_where_the_expression_says(text: str, after: str) -> None:
    body = b"[" + json.dumps(text).encode() + after.encode()
    found = STRING.match(body, 1)
    assert found is not None
    assert string_end(body, 1) == found.end()


@pytest.mark.parametrize("body", [b'"', b'"abc', b'"abc\\"', b'"' + b'\\"' * 20])
def test_a_string_without_end_is_told(body: bytes) -> None:
    with pytest.raises(ValueError, match="has no end"):
        string_end(body, 0)
