"""A profile filters in order, weighs scores, and keeps a trace of both."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dataplane.errors import ResourceExhaustedError
from epp.interfaces.endpoint import Candidates, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.scheduling.profile import Profile
from tests.support.pool import make_request, make_table


class Keep:
    """A filter that keeps the first ``count``."""

    def __init__(self, count: int) -> None:
        self.count = count

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        return candidates.where(np.arange(len(candidates)) < self.count)


class Fixed:
    """A scorer with fixed scores by slot."""

    category = ScorerCategory.BALANCE

    def __init__(self, *scores: float) -> None:
        self.scores = np.array(scores)

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        return self.scores[candidates.slots]


class First:
    """A picker that remembers the totals it saw and picks the best."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.seen: list[float] = []

    def pick(self, request: InferenceRequest, candidates: Candidates, totals: Floats) -> Sequence[int]:
        self.seen = totals.tolist()
        return np.argsort(-totals)[: self.count].tolist()


class Timings:
    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def recorder(self, point: str, plugin: object) -> Callable[[float], None]:
        def record(seconds: float) -> None:
            assert seconds >= 0
            self.seen.append((point, plugin))

        return record


def test_totals_are_weighted_sums():
    picker = First()
    profile = Profile("p", [], [("a", Fixed(0.1, 0.5), 2.0), ("b", Fixed(1.0, 0.0), 0.5)], picker)
    result = profile.run(make_request(), make_table(2).all())
    assert picker.seen == [0.7, 1.0]
    assert [e.spec.name for e in result.endpoints] == ["e1"]
    assert result.profile == "p"
    assert [(s.name, s.weight, s.scores.tolist()) for s in result.scorers] == [
        ("a", 2.0, [0.1, 0.5]),
        ("b", 0.5, [1.0, 0.0]),
    ]


def test_scores_outside_the_range_are_clamped_and_nan_is_zero():
    picker = First()
    scores = Fixed(-1.0, 2.0, float("nan"), float("inf"), float("-inf"), 0.25)
    Profile("p", [], [("a", scores, 4.0)], picker).run(make_request(), make_table(6).all())
    assert picker.seen == [0.0, 4.0, 0.0, 4.0, 0.0, 1.0]


def test_equal_endpoints_get_equal_totals_to_the_last_bit():
    picker = First()
    scorers = [(f"s{i}", Fixed(*[value] * 37), weight) for i, (value, weight) in enumerate(
        [(0.1, 2.0), (1 / 3, 0.7), (0.9, 3.0)]
    )]  # fmt: skip
    Profile("p", [], scorers, picker).run(make_request(), make_table(37).all())
    assert len(set(picker.seen)) == 1


def test_without_scorers_all_totals_are_zero():
    picker = First()
    result = Profile("p", [], [], picker).run(make_request(), make_table(3).all())
    assert picker.seen == [0.0, 0.0, 0.0]
    assert result.scorers == []


def test_filters_run_in_order_and_leave_a_trace():
    profile = Profile("p", [("big", Keep(3)), ("small", Keep(2))], [("a", Fixed(0, 1, 9, 9), 1.0)], First())
    result = profile.run(make_request(), make_table(4).all())
    assert [(f.name, f.before, f.after) for f in result.filters] == [("big", 4, 3), ("small", 3, 2)]
    assert result.filters[-1].left is result.candidates
    assert len(result.candidates) == 2
    assert [e.spec.name for e in result.endpoints] == ["e1"]


def test_filters_that_leave_nobody_end_in_429():
    picker = First()
    profile = Profile("p", [("big", Keep(3)), ("none", Keep(0))], [], picker)
    with pytest.raises(ResourceExhaustedError) as caught:
        profile.run(make_request(), make_table(4).all())
    assert caught.value.status == 429
    assert caught.value.dropped_reason == "rejected-saturated"
    assert caught.value.message == (
        "no endpoint can take the request: filter 'none' of profile 'p' left none of 3"
    )
    assert picker.seen == []


def test_several_endpoints_keep_the_pickers_order():
    profile = Profile("p", [], [("a", Fixed(0.1, 0.9, 0.5), 1.0)], First(2))
    result = profile.run(make_request(), make_table(3).all())
    assert [e.spec.name for e in result.endpoints] == ["e1", "e2"]


def test_durations_are_reported_per_plugin():
    timings = Timings()
    keep, scorer, picker = Keep(2), Fixed(1.0, 0.0), First()
    plain = Profile("p", [("f", keep)], [("a", scorer, 1.0)], picker)
    plain.timed(timings).run(make_request(), make_table(2).all())
    assert timings.seen == [("Filter", keep), ("Scorer", scorer), ("Picker", picker)]
    plain.run(make_request(), make_table(2).all())
    assert len(timings.seen) == 3
