"""From outcomes to figures per policy, and the picker's lead."""

import msgspec
import pytest

from benchmarks.children import BenchError
from benchmarks.machine import describe_machine
from benchmarks.routing import Policy, PolicyResult, RoutingOptions, RoutingResult, sum_up
from benchmarks.routing_load import Outcome
from benchmarks.routing_report import complaints, leads, render
from benchmarks.routing_workload import Workload

WORKLOAD = Workload(seconds=10.0, warmup_s=5.0)


def outcome(at_s: float, ttft_s: float, ended_s: float, cached: int) -> Outcome:
    return Outcome(
        at_s, 0.002, ttft_s, ended_s, prompt_tokens=100, cached_tokens=cached, completion_tokens=20
    )


def policy_result(policy: Policy, ttft_s: float, **changes: object) -> PolicyResult:
    one = sum_up(policy, WORKLOAD, [outcome(6.0, ttft_s, 9.0, 50)], [3, 1], {"fleet": 1.0}, 0.5)
    return msgspec.structs.replace(one, **changes)


def result(*policies: PolicyResult) -> RoutingResult:
    return RoutingResult(describe_machine(), "1.40.0", RoutingOptions(), WORKLOAD, 6120, list(policies))


def test_only_arrivals_after_the_warm_up_count():
    found = sum_up(
        Policy.RANDOM,
        WORKLOAD,
        [
            outcome(1.0, 9.0, 4.0, 0),
            outcome(4.9, 9.0, 6.0, 0),
            outcome(5.0, 0.1, 7.0, 40),
            outcome(14.0, 0.3, 16.0, 60),
            Outcome(9.0, error="status 503"),
        ],
        [3, 1, 0, 0],
        {"fleet": 2.0},
        0.7,
    )
    assert (found.requests, found.errors) == (3, {"status 503": 1})
    assert (found.ttft_s.count, found.ttft_s.p50, found.ttft_s.p90) == (2, 0.1, 0.3)
    assert found.latency_s.max == 2.0
    assert found.hit_ratio == 0.5
    assert found.imbalance == 3.0
    assert found.most_late_s == 0.002


def test_throughput_is_of_answers_that_end_in_the_measured_time():
    ends = [4.9, 5.0, 10.0, 14.9, 15.0]
    found = sum_up(Policy.RANDOM, WORKLOAD, [outcome(5.0, 0.1, end, 0) for end in ends], [], {}, 0.0)
    assert found.output_tokens_per_s == 3 * 20 / 10.0


def test_nothing_complete_has_no_hit_ratio():
    found = sum_up(Policy.RANDOM, WORKLOAD, [Outcome(6.0, error="status 503")], [], {}, 0.0)
    assert (found.hit_ratio, found.imbalance, found.ttft_s.count) == (None, None, 0)


def test_cache_of_one_replica_holds_its_share_of_the_prefixes():
    options = RoutingOptions(groups=48, system_tokens=6000, replica_share=0.34)
    assert options.kv_blocks() == int(48 * 6000 * 0.34 / 16)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"replica_share": 1.0}, "one replica must not hold all of them"),
        ({"replica_share": 0.18}, "the fleet must hold them 1.5 times"),
        ({"groups": 2}, "cannot hold one request of 454: more groups"),
    ],
)
def test_caches_that_would_show_nothing_are_refused(changes: dict[str, object], complaint: str):
    with pytest.raises(BenchError, match=complaint):
        RoutingOptions(**changes).kv_blocks()


def test_rate_follows_from_the_fleet_unless_given():
    derived = RoutingOptions(load=1.0).workload().rate
    assert RoutingOptions(load=2.0).workload().rate == pytest.approx(2 * derived)
    assert RoutingOptions(load=1.0, replicas=4).workload().rate == pytest.approx(derived / 2)
    assert RoutingOptions(load=1.0, time_scale=2.0).workload().rate == pytest.approx(derived / 2)
    assert RoutingOptions(rate=7.0).workload().rate == 7.0


@pytest.mark.parametrize(
    ("profile", "complaint"), [("no-such", "no such profile"), ("instant", "takes no time; give --rate")]
)
def test_profile_from_which_no_rate_follows_is_refused(profile: str, complaint: str):
    with pytest.raises(BenchError, match=complaint):
        RoutingOptions(profile=profile).workload()


def test_leads_compare_the_picker_with_the_others():
    one = result(
        policy_result(Policy.POINTSMAN, 0.1, output_tokens_per_s=300.0),
        policy_result(Policy.ROUND_ROBIN, 0.5, output_tokens_per_s=200.0),
    )
    values = {(lead.over, lead.figure): lead.value for lead in leads(one)}
    assert values[Policy.ROUND_ROBIN, "TTFT p90"] == pytest.approx(5.0)
    assert values[Policy.ROUND_ROBIN, "output tokens/s"] == 1.5
    assert complaints(one) == []


def test_lead_below_the_promise_and_failures_are_complained_about():
    one = result(
        policy_result(Policy.POINTSMAN, 0.5),
        policy_result(Policy.ROUND_ROBIN, 0.75, errors={"status 503": 2}),
    )
    assert complaints(one) == [
        "TTFT p90 against round-robin: 1.50 times better, promised 2",
        "round-robin: 2 requests failed: status 503",
    ]


def test_unjudged_table_shows_the_figures_without_a_verdict():
    one = result(policy_result(Policy.POINTSMAN, 0.1), policy_result(Policy.ROUND_ROBIN, 0.5))
    (judged,) = (line for line in render(one).splitlines() if "TTFT p90 against" in line)
    (unjudged,) = (line for line in render(one, judged=False).splitlines() if "TTFT p90 against" in line)
    assert judged.split() == [*unjudged.split(), "ok"]


def test_without_the_picker_there_is_nothing_to_compare():
    one = result(policy_result(Policy.ROUND_ROBIN, 0.5), policy_result(Policy.RANDOM, 0.6))
    assert leads(one) == []
    assert complaints(one) == []
    assert "times better" not in render(one)


def test_table_has_a_row_per_policy_and_the_leads():
    text = render(result(policy_result(Policy.POINTSMAN, 0.1), policy_result(Policy.ROUND_ROBIN, 0.5)))
    assert "48 groups of 6000 + 1200 prompt tokens, 64 output tokens" in text
    rows = [line.split() for line in text.splitlines()]
    assert [
        "pointsman",
        "1",
        "0",
        "0.100",
        "0.100",
        "0.100",
        "3.00",
        "0.500",
        "2",
        "1.50",
        "0.50",
        "2",
    ] in rows
    assert ["TTFT", "p90", "against", "round-robin", "5.00", "2.0", "ok"] in rows
