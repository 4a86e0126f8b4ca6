"""Ejection, slow start and fallback lists on the request path: from an answer to the next decision."""

from __future__ import annotations

from typing import Any

import pytest

from dataplane.config.resilience import EjectionSpec, ResilienceSpec, SlowStartSpec
from dataplane.errors import ResourceExhaustedError
from dataplane.extproc.exchange import Ending
from epp.decisions import describe
from epp.handler import PickerExchange
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from tests.support.pool import add_endpoint, make_table
from tests.support.request_path import Rig, destination, response

QUEUE = "- type: queue-scorer\n"
TWICE = """
resilience:
  ejection: {consecutiveFailures: 2, baseTime: 10s, maxTime: 40s, jitter: 0}
"""
ROLLOUT = """- type: queue-scorer
- type: disaggregatedset-rollout-screener
  parameters:
    scope: {labelSelector: rev}
    revisionGating: {mode: disabled}
    headerSelectors: [{name: rev, headerName: x-rev, labelKey: rev, mode: strict}]
"""
THREE = "resilience: {fallbackEndpoints: 3, ejection: {consecutiveFailures: 2, jitter: 0, baseTime: 10s}}\n"


def rig(count: int = 3, config: str = TWICE, plugins: str = QUEUE) -> Rig:
    """A picker whose endpoints e0, e1, ... have longer and longer queues, so that e0 is chosen."""
    return Rig(plugins + config, make_table(count, waiting=[10.0 * i for i in range(count)]))


def key(number: int) -> str:
    """Address of endpoint e<number>."""
    return f"10.0.0.{number + 1}:8000"


def exchange(rig: Rig, status: int = 200, served: str = "", *headers: tuple[str, str]) -> str:
    """One whole request; where it was sent."""
    opened, decision = rig.ask()
    opened.on_response_headers(response(*headers, status=status, served=served))
    opened.on_end(Ending.NATURAL)
    return destination(decision)


def series(rig: Rig, name: str) -> list[str]:
    """The exposed series of one metric."""
    text = "".join(rig.metrics.numbers.expose())
    return [line for line in text.splitlines() if line.startswith(f"pointsman_epp_{name}")]


def test_an_endpoint_that_answers_errors_is_left_out_and_comes_back_by_a_probe() -> None:
    picker = rig()
    assert [exchange(picker, 503) for _ in range(2)] == [key(0), key(0)]
    assert [exchange(picker) for _ in range(3)] == [key(1)] * 3
    picker.clock.advance(10.0)
    probe, decision = picker.ask()
    assert destination(decision) == key(0), "its time is over, so one request may try"
    assert exchange(picker) == key(1), "but only one"
    probe.on_response_headers(response(status=200))
    probe.on_end(Ending.NATURAL)
    assert picker.guard.describe(picker.table.all().endpoints[0])["ejection"]["state"] == "watched"
    assert series(picker, "ejections_total") == [
        'pointsman_epp_ejections_total{reason="consecutive-failures"} 1'
    ]


def test_a_failed_probe_sends_it_away_for_longer() -> None:
    picker = rig()
    for _ in range(2):
        exchange(picker, 500)
    picker.clock.advance(10.0)
    assert exchange(picker, 502) == key(0)
    picker.clock.advance(19.0)
    assert exchange(picker) == key(1)
    picker.clock.advance(1.0)
    assert exchange(picker) == key(0)
    assert series(picker, "ejections_total") == [
        'pointsman_epp_ejections_total{reason="consecutive-failures"} 1',
        'pointsman_epp_ejections_total{reason="probe-failed"} 1',
    ]


def test_a_returned_endpoint_warms_up() -> None:
    picker = rig()
    for _ in range(2):
        exchange(picker, 503)
    picker.clock.advance(10.0)
    exchange(picker)
    endpoint = picker.table.all().endpoints[0]
    assert picker.table.warming == 1
    assert picker.guard.describe(endpoint)["share"] == 0.1
    picker.clock.advance(15.0)
    assert picker.guard.describe(endpoint)["share"] == 0.55


@pytest.mark.parametrize("status", [400, 404, 429, 501])
def test_answers_about_the_request_or_of_load_eject_nobody(status: int) -> None:
    picker = rig()
    assert [exchange(picker, status) for _ in range(5)] == [key(0)] * 5
    assert picker.guard.ejector.records == {}


def test_a_client_that_leaves_before_the_answer_says_nothing_about_the_endpoint() -> None:
    picker = rig()
    for _ in range(5):
        opened, decision = picker.ask()
        assert destination(decision) == key(0)
        opened.on_end(Ending.DISCONNECT)
    assert picker.guard.ejector.records == {}


def test_a_probe_whose_client_leaves_lets_the_next_request_try() -> None:
    picker = rig()
    for _ in range(2):
        exchange(picker, 503)
    picker.clock.advance(10.0)
    opened, decision = picker.ask()
    assert destination(decision) == key(0)
    opened.on_end(Ending.DISCONNECT)
    assert exchange(picker) == key(0)


def test_an_endpoint_that_envoy_went_past_is_to_blame_not_the_one_that_served() -> None:
    picker = rig()
    assert [exchange(picker, 200, key(2)) for _ in range(2)] == [key(0), key(0)]
    assert exchange(picker) == key(1)
    assert set(picker.guard.ejector.records) == {picker.table.all().endpoints[0]}
    assert series(picker, "endpoint_failures_total") == [
        'pointsman_epp_endpoint_failures_total{kind="passed-over"} 2'
    ]
    assert series(picker, "fallback_served_total") == [
        'pointsman_epp_fallback_served_total{place="unlisted"} 2'
    ]


def test_an_answer_of_an_overloaded_envoy_is_nobody_s_fault() -> None:
    picker = rig()
    for _ in range(4):
        assert exchange(picker, 503, "", ("x-envoy-overloaded", "true")) == key(0)
    assert picker.guard.ejector.records == {}


def test_a_list_of_endpoints_best_first_is_named_when_asked_for() -> None:
    picker = rig(5, THREE)
    opened, decision = picker.ask()
    assert destination(decision) == f"{key(0)},{key(1)},{key(2)}"
    opened.on_response_headers(response(served=key(1)))
    assert picker.table.inflight[:5].tolist() == [0, 1, 0, 0, 0], "the booking follows"
    opened.on_end(Ending.NATURAL)
    assert not picker.table.inflight.any()
    (record,) = picker.decisions.recent()
    assert record["destination"] == [key(0), key(1), key(2)]
    assert record["response"]["served"] == key(1)
    assert series(picker, "fallback_served_total") == [
        'pointsman_epp_fallback_served_total{place="listed"} 1'
    ]


def test_an_ejected_endpoint_is_not_on_the_list_not_even_while_it_is_probed() -> None:
    picker = rig(4, THREE)
    for _ in range(2):
        exchange(picker, 503, key(0))
    assert exchange(picker) == f"{key(1)},{key(2)},{key(3)}"
    picker.clock.advance(10.0)
    picker.table.waiting[0] = 100.0
    assert exchange(picker) == f"{key(1)},{key(2)},{key(3)}"


def test_without_a_policy_one_endpoint_is_named() -> None:
    picker = rig(4, "")
    assert exchange(picker) == key(0)


def test_when_all_of_a_kind_are_ejected_they_are_used_all_the_same() -> None:
    table = EndpointTable()
    for i, role in enumerate(["prefill", "decode", "prefill"]):
        table.add(EndpointSpec(f"e{i}", "default", f"10.0.0.{i + 1}", 8000, {"llm-d.ai/role": role}))
    picker = Rig("- type: decode-filter\n- type: queue-scorer\n" + TWICE, table)
    for _ in range(2):
        assert exchange(picker, 503) == key(1)
    assert picker.table.ejected.tolist()[:3] == [False, True, False]
    assert exchange(picker, 200) == key(1), "an answer of the doubtful one is better than none"
    assert picker.table.barred == 0, "and it has proved itself"


def test_a_screener_that_finds_only_ejected_endpoints_keeps_them_too() -> None:
    table = EndpointTable()
    for i, revision in enumerate(["old", "new", "old"]):
        labels = {"rev": revision}
        table.add(EndpointSpec(f"e{i}", "default", f"10.0.0.{i + 1}", 8000, labels))
    picker = Rig(ROLLOUT + TWICE, table)
    fields = ("x-rev", "new")

    def ask(status: int) -> str:
        opened, decision = picker.ask(fields)
        opened.on_response_headers(response(status=status))
        opened.on_end(Ending.NATURAL)
        return destination(decision)

    assert [ask(503), ask(503)] == [key(1), key(1)]
    assert table.barred == 1
    assert ask(200) == key(1)


def test_filters_that_leave_nobody_still_refuse_when_nobody_is_ejected() -> None:
    picker = Rig("- type: decode-filter\n" + TWICE, labelled("prefill", "prefill"))
    with pytest.raises(ResourceExhaustedError):
        picker.ask()


def labelled(*roles: str) -> EndpointTable:
    """A table of endpoints with these roles."""
    table = EndpointTable()
    for i, role in enumerate(roles):
        table.add(EndpointSpec(f"e{i}", "default", f"10.0.0.{i + 1}", 8000, {"llm-d.ai/role": role}))
    return table


def test_a_failure_of_two_stages_is_laid_at_the_door_of_the_one_that_fails_with_every_partner() -> None:
    plugins = """
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
- type: always-disagg-pd-decider
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
"""
    profiles = """
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]
resilience: {ejection: {consecutiveFailures: 3, minRequests: 0}}
"""
    table = labelled("prefill", "prefill", "decode", "decode")
    picker = Rig(plugins + profiles, table)
    broken = table.at(key(0))
    for slot in range(4):
        table.begin_scrape(slot)
        table.end_scrape(slot, picker.clock())
    for turn in range(12):  # every prefill endpoint with every decode endpoint in turn
        table.waiting[:4] = [turn % 2 * 9, (turn + 1) % 2 * 9, turn // 2 % 2 * 9, (turn // 2 + 1) % 2 * 9]
        opened, _ = picker.ask()
        admitted = opened._admitted
        assert admitted is not None
        status = 502 if admitted.result.prefill_endpoint is broken else 200
        opened.on_response_headers(response(status=status))
        opened.on_end(Ending.NATURAL)
    assert [e.spec.name for e in table.all().endpoints if table.ejected[e.slot]] == ["e0"]


def test_new_endpoints_warm_up_and_leave_without_a_trace() -> None:
    picker = rig()
    endpoint = add_endpoint(picker.table, "new")
    picker.guard.on_endpoint_added(endpoint)
    assert picker.guard.describe(endpoint) == {"ejection": None, "share": 0.1}
    assert series(picker, "warming_endpoints") == ["pointsman_epp_warming_endpoints 1"]
    picker.table.remove(endpoint.spec.id)
    picker.guard.on_endpoint_removed(endpoint)
    assert picker.table.warming == 0


def test_another_policy_takes_over_what_the_old_one_knew() -> None:
    picker = rig()
    for _ in range(2):
        exchange(picker, 503)
    picker.guard.configure(ResilienceSpec(ejection=EjectionSpec(consecutive_failures=50)))
    assert exchange(picker) == key(1)
    assert series(picker, "ejected_endpoints") == [
        'pointsman_epp_ejected_endpoints{state="ejected"} 1',
        'pointsman_epp_ejected_endpoints{state="probing"} 0',
    ]
    off = ResilienceSpec(ejection=EjectionSpec(enabled=False), slow_start=SlowStartSpec(enabled=False))
    picker.guard.configure(off)
    assert [exchange(picker, 503) for _ in range(6)] == [key(0)] * 6
    assert picker.table.warming == 0


def test_the_ledger_of_a_flapping_endpoint_ends_at_zero_and_never_below() -> None:
    table = make_table(1)
    picker = Rig("- type: active-request-scorer\n- type: token-load-scorer\n", table)

    def ask() -> PickerExchange:
        return picker.ask()[0]

    lowest: list[Any] = []

    def settle(exchanges: list[PickerExchange]) -> None:
        for opened in exchanges:
            opened.on_response_headers(response(status=200))
            opened.on_end(Ending.NATURAL)
            lowest.extend((table.inflight.min(), table.unseen.min(), table.inflight_tokens.min()))

    old = [ask() for _ in range(5)]
    first = table.remove("default/e0")
    assert first is not None
    second = add_endpoint(table, "e0")
    assert (second.slot, second.key) == (first.slot, first.key)
    new = [ask() for _ in range(2)]
    tokens = table.inflight_tokens[second.slot]
    assert tokens > 0
    settle(old)
    assert table.inflight[second.slot] == 2, "the five old releases do not touch the new endpoint"
    assert table.inflight_tokens[second.slot] == tokens
    settle(new)
    assert table.inflight[second.slot] == 0
    assert table.inflight_tokens[second.slot] == 0
    assert min(lowest) == 0


def test_the_record_of_a_decision_shows_the_whole_list() -> None:
    picker = rig(3, THREE)
    exchange(picker)
    (record,) = picker.decisions._records
    assert describe(record)["destination"] == [key(0), key(1), key(2)]


def test_an_endpoint_whose_grpc_calls_fail_is_left_out() -> None:
    picker = rig()
    unavailable = ("grpc-status", "14")
    assert [exchange(picker, 200, "", unavailable) for _ in range(2)] == [key(0), key(0)]
    assert exchange(picker, 200, "", ("grpc-status", "0")) == key(1)
    assert 'pointsman_epp_endpoint_failures_total{kind="status"} 2' in series(picker, "endpoint_failures")


def test_what_is_shown_is_true_though_no_request_comes_any_more() -> None:
    picker = rig()
    for _ in range(2):
        exchange(picker, 503)
    first = picker.table.at(key(0))
    assert first is not None
    assert series(picker, "ejected_endpoints") == [
        'pointsman_epp_ejected_endpoints{state="ejected"} 1',
        'pointsman_epp_ejected_endpoints{state="probing"} 0',
    ]
    picker.clock.advance(10.0)
    assert picker.guard.describe(first)["ejection"]["state"] == "probing"
    assert series(picker, "ejected_endpoints") == [
        'pointsman_epp_ejected_endpoints{state="ejected"} 0',
        'pointsman_epp_ejected_endpoints{state="probing"} 1',
    ]
    picker.guard.on_endpoint_added(first)
    assert series(picker, "warming_endpoints") == ["pointsman_epp_warming_endpoints 1"]
    picker.clock.advance(31.0)
    assert series(picker, "warming_endpoints") == ["pointsman_epp_warming_endpoints 0"]


def test_without_slow_start_nobody_is_shown_as_warming() -> None:
    picker = rig(config="resilience: {slowStart: {enabled: false}}\n")
    slot = picker.table.all().endpoints[0].slot
    picker.table.distrust(slot, gone=True)
    picker.table.reached(slot, picker.clock())
    assert series(picker, "warming_endpoints") == ["pointsman_epp_warming_endpoints 0"]
