"""The shared-prefix workload follows from its seed."""

import itertools

import msgspec
import pytest

from benchmarks.routing_workload import Workload, arrivals, cold_service_s, question, system_prompt
from simulator.profile import load_profile
from simulator.tokenizer import TOKEN_BYTES

SMALL = Workload(groups=4, system_tokens=100, question_tokens=20, rate=50.0, seconds=20.0, warmup_s=5.0)


def test_same_seed_same_requests_at_the_same_moments():
    assert list(arrivals(SMALL)) == list(arrivals(SMALL))
    assert system_prompt(SMALL, 2) == system_prompt(SMALL, 2)


def test_other_seed_other_requests():
    other = msgspec.structs.replace(SMALL, seed=2)
    assert list(arrivals(SMALL)) != list(arrivals(other))
    assert system_prompt(SMALL, 2) != system_prompt(other, 2)


def test_arrivals_fill_the_time_at_the_rate_and_use_every_group():
    found = list(arrivals(SMALL))
    assert all(one.at_s < two.at_s for one, two in itertools.pairwise(found))
    assert found[0].at_s > 0
    assert found[-1].at_s < 25.0
    assert len(found) == pytest.approx(1250, abs=110)
    assert {one.group for one in found} == {0, 1, 2, 3}
    assert [one.question for one in found] == list(range(len(found)))


def test_rate_changes_moments_but_not_groups():
    slower = msgspec.structs.replace(SMALL, rate=5.0)
    few = [one.group for one in arrivals(slower)]
    assert few == [one.group for one in arrivals(SMALL)][: len(few)]


def test_texts_have_their_length_in_tokens_and_questions_are_unique():
    found = list(itertools.islice(arrivals(SMALL), 50))
    texts = [question(SMALL, one) for one in found]
    assert {len(text) for text in texts} == {20 * TOKEN_BYTES}
    assert len({text[:8] for text in texts}) == 50
    assert len(system_prompt(SMALL, 0)) == 100 * TOKEN_BYTES


def test_cold_service_time_is_prefill_and_a_share_of_decoding():
    workload = Workload(system_tokens=6000, question_tokens=1200, output_tokens=64)
    expected = 0.007 + 7200 * 36e-6 + 64 * (20e-6 + 7200 * 56e-9)
    assert cold_service_s(workload, load_profile("h100-8b")) == pytest.approx(expected)
