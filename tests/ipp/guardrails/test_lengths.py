"""Which bodies are looked at beside the event loop."""

from __future__ import annotations

import pytest

from ipp.guardrails.lengths import ASIDE_BYTES, SHORT_BYTES, Pace


@pytest.mark.parametrize(
    ("body", "is_long"),
    [
        (b"4" * SHORT_BYTES, False),
        (b"4111 " * (SHORT_BYTES // 5 + 500), False),
        (b"4111 " * 3000, True),
        (b"a@b.c " * 2000, False),
        (b"a@b.c " * 3000, True),
        (b"words " * 6000, False),
        (b"w" * ASIDE_BYTES, False),
        (b"w" * (ASIDE_BYTES + 1), True),
        (b"", False),
    ],
    ids=lambda value: f"{len(value)} of {value[:5]!r}" if isinstance(value, bytes) else "",
)
def test_a_body_is_long_by_its_size_and_by_what_is_in_it(body: bytes, is_long: bool) -> None:
    assert Pace().is_long(body) is is_long


def test_a_policy_that_takes_long_has_longer_bodies() -> None:
    pace, body = Pace(), b"words " * 4000
    assert not pace.is_long(body)
    for _ in range(100):
        pace.took(40_000, 0.04)
    assert pace.us_per_byte == pytest.approx(1.0, abs=0.01)
    assert pace.is_long(body)
    assert not pace.is_long(body[:SHORT_BYTES])


def test_short_bodies_say_nothing_of_the_pace() -> None:
    pace = Pace()
    pace.took(SHORT_BYTES, 1.0)
    assert pace.us_per_byte == 0.0
