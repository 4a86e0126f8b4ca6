"""Traced decisions: what was true when they were made, whatever happens later, and within the caps."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from cli.explain_table import render
from dataplane.errors import BadRequestError, ResourceExhaustedError, ServiceUnavailableError
from dataplane.extproc.events import Proceed, Reject
from dataplane.extproc.exchange import Ending, HttpRequest
from dataplane.headers import EXPLAIN, Headers
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams
from epp.explain.policy import ExplainPolicy
from epp.interfaces.attributes import PrefixMatch
from epp.interfaces.endpoint import Candidates, EndpointSpec, Floats
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ScorerCategory
from epp.interfaces.trace import MAX_REMOVED, MAX_ROWS
from tests.support.labelled import labelled_table
from tests.support.plugins import Base
from tests.support.pool import make_table
from tests.support.request_path import BODY, Rig, destination, response
from tests.support.request_plugins import REQUEST_REGISTRY

SCORERS = """
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
"""
ROLES = """
- type: decode-filter
- type: queue-scorer
"""


class MatchingParams(PluginParams, frozen=True):
    """How many values its match has."""

    values: int = 2


ALWAYS = ExplainPolicy(1.0, "off")
ID = ("x-request-id", "r1")
ASK = (EXPLAIN, "true")


def newest(rig: Rig) -> dict[str, Any]:
    """The newest decision as it is shown."""
    return next(rig.decisions.recent(1))


def test_every_score_total_age_and_figure_is_the_one_of_the_decision() -> None:
    table = make_table(2, waiting=[4.0, 0.0], kv_usage=[0.25, 0.5], running=[3.0, 1.0])
    rig = Rig(SCORERS, table, ALWAYS)
    table.updated_at[:2] = [rig.clock.now - 0.25, 0.0]
    exchange, _ = rig.ask(ID)
    table.waiting[:2] = 99
    table.updated_at[:2] = rig.clock.now + 50
    table.remove("default/e1")
    exchange.on_end(Ending.NATURAL)
    shown = newest(rig)
    assert shown["traced"] == "sampled"
    assert shown["destination"] == ["10.0.0.2:8000"]
    assert shown["pool"] == {"endpoints": 2, "candidates": 2, "gone": 0, "ejected": 0}
    profile = shown["profiles"]["default"]
    assert profile["picker"] == "max-score-picker"
    winner, other = profile["candidates"]
    assert winner == {
        "endpoint": "10.0.0.2:8000",
        "name": "default/e1",
        "picked": True,
        "total": 1.5,
        "scores": {
            "queue-scorer": {"score": 1.0, "weight": 1.0, "weighted": 1.0},
            "kv-cache-utilization-scorer": {"score": 0.5, "weight": 1.0, "weighted": 0.5},
            "prefix-cache-scorer": {"score": 0.0, "weight": 1.0, "weighted": 0.0},
        },
        "matchedBlocks": {"approx-prefix-cache-producer": 0.0},
        "dataAgeMs": None,
        "fresh": True,
        "trust": 1.0,
        "waiting": 0.0,
        "running": 1.0,
        "kvUsage": 0.5,
        "unseen": 0,
        "inflight": 0,
        "inflightTokens": 0,
    }
    assert (other["endpoint"], other["dataAgeMs"], other["waiting"]) == ("10.0.0.1:8000", 250.0, 4.0)
    assert profile["winner"] == {"endpoint": "10.0.0.2:8000", "name": "default/e1", "total": 1.5}
    assert profile["runnerUp"] == {
        "endpoint": "10.0.0.1:8000", "name": "default/e0", "total": 0.95, "margin": 0.55,
    }  # fmt: skip
    assert profile["ties"] == 1
    assert shown["response"]["ending"] == "natural"


def test_ties_are_counted_and_the_picked_one_comes_first() -> None:
    rig = Rig("- type: queue-scorer\n", make_table(3), ALWAYS)
    _, answer = rig.ask(ID)
    profile = newest(rig)["profiles"]["default"]
    assert profile["ties"] == 3
    assert profile["runnerUp"]["margin"] == 0.0
    assert [row["picked"] for row in profile["candidates"]] == [True, False, False]
    assert profile["candidates"][0]["endpoint"] == destination(answer) == profile["winner"]["endpoint"]


def test_a_prefix_that_is_held_is_shown_in_blocks() -> None:
    rig = Rig(SCORERS, make_table(2), ALWAYS)
    body = b'{"model": "m", "prompt": "' + b"word " * 400 + b'"}'
    fields = Headers.of([(":path", "/v1/completions"), ID])
    for _ in range(2):
        exchange = rig.handler.open()
        exchange.on_request(HttpRequest(fields, body, None), lambda _: None)
    shown = newest(rig)
    assert shown["prefixMatches"] == [
        {"producer": "approx-prefix-cache-producer", "totalBlocks": 8, "blockSizeTokens": 64}
    ]
    first, second = shown["profiles"]["default"]["candidates"]
    assert first["matchedBlocks"] == {"approx-prefix-cache-producer": 7.0}
    assert second["matchedBlocks"] == {"approx-prefix-cache-producer": 0.0}


def test_a_filter_shows_whom_it_removed() -> None:
    table = labelled_table([{}, {"llm-d.ai/role": "prefill"}, {"llm-d.ai/role": "decode"}])
    rig = Rig(ROLES, table, ALWAYS)
    rig.ask(ID)
    table.relabel("default/e1", EndpointSpec("e1", "default", "10.0.0.2", 8000, {}))
    (step,) = newest(rig)["profiles"]["default"]["filters"]
    assert (step["name"], step["before"], step["after"]) == ("decode-filter", 3, 2)
    assert [(r["endpoint"], r["name"]) for r in step["removed"]] == [("10.0.0.2:8000", "default/e1")]
    assert step["removedNotListed"] == 0


def test_a_large_pool_makes_no_larger_trace() -> None:
    count = 3 * MAX_ROWS
    table = labelled_table([{"llm-d.ai/role": "prefill" if i % 2 else "decode"} for i in range(count)])
    table.waiting[:count] = np.arange(count)
    rig = Rig(ROLES + "- type: random-picker\n", table, ALWAYS)
    for number in range(20):
        _, answer = rig.ask(("x-request-id", str(number)))
        record = rig.decisions._traced[-1]
        assert record.result is None, "the arrays of the whole pool are let go of"
        profile = newest(rig)["profiles"]["default"]
        (step,) = profile["filters"]
        assert len(step["removed"]) == MAX_REMOVED
        assert step["removedNotListed"] == count // 2 - MAX_REMOVED
        assert len(profile["candidates"]) == MAX_ROWS
        assert profile["candidatesNotListed"] == count // 2 - MAX_ROWS
        picked = [row["endpoint"] for row in profile["candidates"] if row["picked"]]
        assert picked == profile["picked"] == [destination(answer)]
        first_not_picked = next(row["endpoint"] for row in profile["candidates"] if not row["picked"])
        assert profile["runnerUp"]["endpoint"] == first_not_picked


@pytest.mark.parametrize("mode", ["off", "id", "full"])
def test_only_where_it_is_allowed_a_client_is_told_and_nothing_reaches_the_model_server(mode: str) -> None:
    rig = Rig("- type: queue-scorer\n", make_table(2), ExplainPolicy(0.0, mode))
    exchange, answer = rig.ask(ID, ASK)
    assert isinstance(answer, Proceed)
    assert list(answer.remove_headers) == [EXPLAIN]
    said = exchange.on_response_headers(response((EXPLAIN, "forged")))
    assert isinstance(said, Proceed)
    headers = dict(said.set_headers)
    if mode == "off":
        assert EXPLAIN not in headers
        assert list(said.remove_headers) == [EXPLAIN]
        assert newest(rig)["traced"] == ""
        return
    assert list(said.remove_headers) == []
    assert newest(rig)["traced"] == "asked"
    line = headers[EXPLAIN].decode()
    if mode == "id":
        assert line == "id=r1; config="
    else:
        first = destination(answer)
        other = next(e.key for e in rig.table.all().endpoints if e.key != first)
        name = rig.table.at(first).spec.name  # type: ignore[union-attr]
        assert line == (
            f"id=r1; config=; candidates=2/2; endpoint={first}; name={name}; score=1; ties=2; "
            f"runnerUp={other}; margin=0"
        )


def test_a_request_that_does_not_ask_is_told_nothing() -> None:
    rig = Rig("- type: queue-scorer\n", make_table(2), ExplainPolicy(1.0, "full"))
    for value in ("false", "0", "", "yes please"):
        exchange, _ = rig.ask(ID, (EXPLAIN, value))
        said = exchange.on_response_headers(response())
        assert isinstance(said, Proceed)
        assert EXPLAIN not in dict(said.set_headers)
        assert newest(rig)["traced"] == "sampled"


def test_a_rejection_before_the_request_is_read_says_the_reason_as_well() -> None:
    rig = Rig(SCORERS, explain=ExplainPolicy.of(0.0, "full"))
    _, decision = rig.ask(ID, ASK, body=b"[]")
    assert isinstance(decision, Reject)
    line = dict(decision.headers)[EXPLAIN].decode()
    assert line.startswith("id=r1; stage=parse; status=400; config=; reason=BadRequest: ")


def test_a_rejection_says_the_stage_and_what_each_filter_did() -> None:
    table = labelled_table([{"llm-d.ai/role": "prefill"}] * 2)
    rig = Rig(ROLES, table, ExplainPolicy(0.0, "full"))
    exchange, answer = rig.ask(ID, ASK)
    assert isinstance(answer, Reject)
    assert answer.status == 429
    reason = (
        "ResourceExhausted: no endpoint can take the request: filter 'decode-filter' of profile 'default' "
        "left none of 2"
    )
    line = dict(answer.headers)[EXPLAIN].decode()
    assert line == f"id=r1; stage=scheduling; status=429; config=; candidates=2/2; reason={reason}"
    exchange.on_end(Ending.REJECTED)
    shown = newest(rig)
    assert (shown["stage"], shown["error"]) == ("scheduling", reason)
    assert shown["response"]["ending"] == "rejected"
    profile = shown["profiles"]["default"]
    assert profile["error"] == reason.partition(": ")[2]
    assert [(f["before"], f["after"], len(f["removed"])) for f in profile["filters"]] == [(2, 0, 2)]
    assert "destination" not in shown
    assert table.inflight.sum() == 0

    with pytest.raises(ResourceExhaustedError):
        rig.ask(ID)
    light = newest(rig)
    assert (light["traced"], light["stage"], light["error"]) == ("", "scheduling", reason)


def test_an_admitter_is_among_the_verdicts_whatever_it_says() -> None:
    rig = Rig("- {type: tell-tale, name: door, parameters: {denial: too late}}\n", explain=ALWAYS)
    with pytest.raises(ResourceExhaustedError):
        rig.ask(ID)
    shown = newest(rig)
    assert shown["stage"] == "admission"
    assert shown["verdicts"] == [
        {"stage": "admitter", "plugin": "door", "before": 2, "after": 0, "reason": "too late", "removed": []}
    ]
    assert shown["profiles"] == {}

    rig = Rig("- {type: tell-tale, name: door}\n", explain=ALWAYS)
    rig.ask(ID)
    assert newest(rig)["verdicts"][0]["reason"] == "admitted"


def test_an_empty_pool_is_refused_among_the_candidates() -> None:
    rig = Rig("- type: queue-scorer\n", make_table(0), ALWAYS)
    with pytest.raises(ServiceUnavailableError):
        rig.ask(ID)
    shown = newest(rig)
    assert shown["stage"] == "candidates"
    assert shown["pool"] == {"endpoints": 0, "candidates": 0, "gone": 0, "ejected": 0}


def test_a_body_nobody_understands_is_recorded_as_well() -> None:
    rig = Rig("- type: queue-scorer\n", explain=ExplainPolicy(0.0, "id"))
    odd = Headers.of([(":path", "/v1/completions"), ID, ASK])
    answer = rig.handler.open().on_request(HttpRequest(odd, b"{", None), lambda _: None)
    assert isinstance(answer, Reject)
    assert dict(answer.headers)[EXPLAIN] == b"id=r1; stage=parse; status=400; config="
    with pytest.raises(BadRequestError):
        rig.handler.open().on_request(
            HttpRequest(Headers.of([(":path", "/v1/completions"), ID]), BODY[:5], None), lambda _: None
        )
    assert [(d["requestId"], d["stage"]) for d in rig.decisions.recent()] == [("r1", "parse")] * 2


def test_stages_that_found_nobody_are_shown_beside_the_one_that_did() -> None:
    plugins = """
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always}}}
- {type: always-disagg-pd-decider, name: always}
- type: decode-filter
- type: prefill-filter
- type: queue-scorer
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]}
"""
    rig = Rig(plugins, labelled_table([{"llm-d.ai/role": "decode"}] * 2), ALWAYS)
    rig.ask(ID)
    shown = newest(rig)
    assert (shown["decision"], shown["leftOut"], shown["primaryProfile"]) == (
        "decode-only",
        ["prefill"],
        "decode",
    )
    assert shown["profiles"]["decode"]["error"] == ""
    assert "left none of 2" in shown["profiles"]["prefill"]["error"]
    assert shown["profiles"]["prefill"]["filters"][0]["after"] == 0

    rig.table.relabel(
        "default/e1", EndpointSpec("e1", "default", "10.0.0.2", 8000, {"llm-d.ai/role": "prefill"})
    )
    rig.ask(ID)
    shown = newest(rig)
    assert (shown["decision"], shown["leftOut"], shown["prefillProfile"]) == ("prefill-decode", [], "prefill")
    assert shown["profiles"]["prefill"]["picked"] == ["10.0.0.2:8000"]


class MatchingScorer(Base):
    """Leaves a prefix match of its own kind, with as many values as it is told to."""

    info: ClassVar = PluginInfo("matching-scorer", MatchingParams)
    category: ClassVar = ScorerCategory.BALANCE

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        same = Candidates(candidates.table, candidates.slots)
        match = PrefixMatch(same, np.ones(self.params.values), 7, 16)
        request.put(DataKey("OwnMatch"), match)
        return np.zeros(len(candidates))


def rig_with_match(monkeypatch: pytest.MonkeyPatch, values: int) -> Rig:
    registry = REQUEST_REGISTRY.extended({"matching-scorer": f"{__name__}:MatchingScorer"})
    monkeypatch.setattr("tests.support.request_path.REQUEST_REGISTRY", registry)
    return Rig(f"- {{type: matching-scorer, parameters: {{values: {values}}}}}", explain=ALWAYS)


def test_a_match_of_a_kind_of_its_own_is_named_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_with_match(monkeypatch, 2)
    rig.ask(ID)
    shown = newest(rig)
    assert "incomplete" not in shown
    assert shown["prefixMatches"] == [{"producer": "OwnMatch", "totalBlocks": 7, "blockSizeTokens": 16}]
    rows = shown["profiles"]["default"]["candidates"]
    assert [row["matchedBlocks"] for row in rows] == [{"OwnMatch": 1.0}] * 2


def test_a_decision_that_cannot_be_traced_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_with_match(monkeypatch, 5)
    exchange, answer = rig.ask(ID)
    assert destination(answer) in newest(rig)["destination"]
    exchange.on_end(Ending.NATURAL)
    shown = newest(rig)
    assert shown["incomplete"].startswith("ValueError: ")
    assert shown["response"]["ending"] == "natural"
    assert "the trace is incomplete: " in render(shown)
