"""The decision log: bounded, readable by anybody, and of no use for filling memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epp.decisions import MAX_FOUND, MAX_TEXT, DecisionLog, DecisionQuery, DecisionRecord, clean
from epp.interfaces.endpoint import EndpointSpec
from epp.interfaces.trace import DecisionTrace, Origin


def record(**fields: Any) -> DecisionRecord:
    """A record with what matters to a test."""
    values: dict[str, Any] = {
        "request_id": "r",
        "decided_at": 0.0,
        "model": "m",
        "target_model": "m",
        "priority": 0,
        "fairness_id": "f",
        "prompt_bytes": 0,
        "duration_s": 0.0,
    }
    return DecisionRecord(**(values | fields))


def test_the_newest_come_first_and_the_oldest_make_room() -> None:
    log = DecisionLog(2, wall_clock=lambda: 7.0)
    for name in "abc":
        log.add(record(request_id=name))
    assert [(r["requestId"], r["decidedAt"]) for r in log.recent()] == [("c", 7.0), ("b", 7.0)]
    assert [r["requestId"] for r in log.recent(1)] == ["c"]
    assert list(log.recent(0)) == []
    assert len(log) == 2


def test_a_log_of_no_size_keeps_nothing() -> None:
    log = DecisionLog(0)
    log.add(record())
    assert list(log.recent()) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("z" * 5_000_000, "z" * MAX_TEXT),
        ("grün", "grün"),
        ("\ud800", "?"),
        (b"\xff\xfe".decode("utf-8", "surrogateescape"), "??"),
        ("é" * 1000, "é" * MAX_TEXT),
    ],
)
def test_text_a_client_chose_is_cut_and_made_printable(text: str, kept: str) -> None:
    assert clean(text) == kept
    log = DecisionLog(1)
    log.add(record(request_id=text, model=text, target_model=text, fairness_id=text))
    (shown,) = log.recent()
    assert [shown[name] for name in ("requestId", "model", "targetModel", "fairnessId")] == [kept] * 4
    json.dumps(shown, ensure_ascii=False).encode()


def test_a_decision_is_found_under_the_id_as_it_came() -> None:
    log = DecisionLog(3)
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    for name in ("a", odd, "a"):
        log.add(record(request_id=name))
    assert len(list(log.find("a"))) == 2
    assert len(list(log.find(odd))) == 1
    assert list(log.find("b")) == []


def traced(name: str, *addresses: str) -> DecisionRecord:
    """A traced decision for endpoints at these addresses."""
    trace = DecisionTrace(Origin.ASKED)
    trace.destination = [EndpointSpec(a, "default", a, 80) for a in addresses]
    return record(request_id=name, trace=trace)


def test_traced_decisions_outlive_the_others_and_are_shown_once() -> None:
    log = DecisionLog(2, traces=2)
    for name in "abc":
        log.add(traced(name))
        log.add(record(request_id=name))
    assert [(r["requestId"], r["traced"]) for r in log.recent()] == [
        ("c", ""),
        ("c", "asked"),
        ("b", "asked"),
    ]
    assert [r["traced"] for r in log.find("c")] == ["", "asked"]
    assert list(log.find("a")) == []


def test_a_log_of_no_size_still_keeps_what_is_traced() -> None:
    log = DecisionLog(0)
    log.add(traced("a"))
    log.add(record())
    assert [r["requestId"] for r in log.recent()] == ["a"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"model": "m2"}, ["b"]),
        ({"model": "sent-on"}, ["b"]),
        ({"endpoint": "10.0.0.2:80"}, ["c"]),
        ({"endpoint": "10.0.0.9:80"}, ["a"]),
        ({"ending": "natural"}, ["a"]),
        ({"ending": "running"}, ["c", "b"]),
        ({"traced": True}, ["c"]),
        ({"traced": True, "model": "m2"}, []),
        ({"limit": 1}, ["c"]),
        ({"limit": 1, "model": "m2"}, ["b"]),
    ],
)
def test_decisions_are_found_by_what_is_known_of_them(query: dict[str, Any], found: list[str]) -> None:
    log = DecisionLog(5)
    log.add(record(request_id="a", served="10.0.0.9:80", ending="natural"))
    log.add(record(request_id="b", model="m2", target_model="sent-on"))
    log.add(traced("c", "10.0.0.1", "10.0.0.2"))
    assert [r["requestId"] for r in log.recent(DecisionQuery(**query))] == found


def test_a_search_looks_at_so_many_records_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epp.decisions.MAX_SEARCHED", 3)
    log = DecisionLog(10)
    for model in "abcd":
        log.add(record(model=model, target_model=model))
    assert [len(list(log.recent(DecisionQuery(model=model)))) for model in "abcd"] == [0, 1, 1, 1]


def test_of_one_id_given_to_all_requests_the_newest_are_shown() -> None:
    log = DecisionLog(MAX_FOUND + 5)
    for number in range(MAX_FOUND + 5):
        log.add(record(request_id="same", prompt_bytes=number))
    found = log.find("same")
    assert next(found)["promptBytes"] == MAX_FOUND + 4
    assert len(list(found)) == MAX_FOUND - 1
