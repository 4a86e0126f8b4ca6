"""The line a client gets: one header value, whatever its parts are made of."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from epp.decisions import DecisionRecord
from epp.explain.summary import MAX_BYTES, MAX_VALUE, summarize
from epp.interfaces.trace import DecisionTrace, Origin


def rejected(request_id: str, config: str = "abc", error: str = "no") -> DecisionRecord:
    """A rejection."""
    return DecisionRecord(
        request_id, 0.0, "m", "m", 0, "f", 0, 0.0, config, error=error, stage="s", status=429
    )


def test_the_id_can_be_put_into_a_path() -> None:
    line = summarize(rejected("a b/c;=\r\nx"), full=False)
    assert line == "id=a%20b%2Fc%3B%3D%0D%0Ax; stage=s; status=429; config=abc"


UTF8 = st.text(st.characters(codec="utf-8"), max_size=600)


@given(UTF8, UTF8, UTF8)
def test_any_text_gives_a_printable_line_of_bounded_length(request_id: str, config: str, error: str) -> None:
    record = rejected(request_id, config, error or "no")
    record.trace = DecisionTrace(Origin.ASKED)
    line = summarize(record, full=True)
    assert len(line) <= MAX_BYTES
    assert line.isascii()
    assert line.isprintable()
    shown = line.split("; ")[0].removeprefix("id=")
    assert request_id.encode().startswith(unquote_to_bytes(shown))
    assert unquote_to_bytes(shown) == request_id.encode() or len(shown) > MAX_VALUE - 3
