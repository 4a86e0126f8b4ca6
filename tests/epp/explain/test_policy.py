"""Which requests are traced: the share that is configured, drawn at random."""

from __future__ import annotations

import itertools
import random

import pytest

from dataplane.headers import EXPLAIN, Headers
from epp.explain.policy import ExplainPolicy
from epp.interfaces.trace import Origin
from tests.support.pool import make_request


def traced(policy: ExplainPolicy, count: int) -> list[int]:
    """Numbers of the requests that are traced among so many."""
    numbers = []
    for number in range(count):
        request = make_request()
        policy.consider(request)
        if request.trace is not None:
            numbers.append(number)
    return numbers


def test_nobody_is_asked_when_nothing_is_ever_traced() -> None:
    assert ExplainPolicy.of(0.0, "off") is None
    assert ExplainPolicy.of(0.0, "id") is not None


def test_shares_of_zero_and_one_are_exact() -> None:
    assert traced(ExplainPolicy(0.0, "id"), 1000) == []
    assert traced(ExplainPolicy(1.0, "off"), 1000) == list(range(1000))


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_gaps_between_samples_are_random_and_their_share_is_the_configured_one(share: float) -> None:
    numbers = traced(ExplainPolicy(share, "off", random.Random(7).random), 100_000)
    assert 0.9 * share < len(numbers) / 100_000 < 1.1 * share
    gaps = {b - a for a, b in itertools.pairwise(numbers)}
    assert len(gaps) > 5


def test_a_tiny_share_and_the_ends_of_the_random_range_are_no_mistake() -> None:
    for rng in (lambda: 0.0, lambda: 1.0 - 2**-53):
        for share in (1e-300, 1e-12, 0.5, 1.0 - 2**-53):
            ExplainPolicy(share, "off", rng).consider(make_request())


@pytest.mark.parametrize("value", ["true", "TRUE", " true ", "1"])
def test_a_client_that_may_ask_is_always_traced(value: str) -> None:
    request = make_request()
    request.headers = Headers.of([(EXPLAIN, value)])
    ExplainPolicy(0.0, "id").consider(request)
    assert request.trace is not None
    assert request.trace.origin is Origin.ASKED
