"""Why filters and screeners removed endpoints, in words that were true at the decision."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import numpy as np
import pytest

from dataplane.errors import RequestError
from dataplane.headers import TEST_SELECTION
from dataplane.plugin.base import PluginInfo
from epp.explain.policy import ExplainPolicy
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.request import InferenceRequest
from epp.interfaces.trace import DecisionTrace, Origin
from epp.plugins.filters.prefix_cache_affinity import PrefixCacheAffinityFilter
from tests.support.labelled import labelled_table
from tests.support.plugins import Base
from tests.support.pool import make_plugin, make_request, make_table
from tests.support.request_path import Rig

ALWAYS = ExplainPolicy(1.0, "off")
LABELS = [{"llm-d.ai/role": "decode", "zone": "a"}, {"llm-d.ai/role": "prefill"}, {"zone": "b"}]


def reasons(plugins: str, *headers: tuple[str, str], labels: list[Any] = LABELS) -> dict[str, str]:
    """Reason for each endpoint that the only filter or screener removes."""
    rig = Rig(plugins, labelled_table(labels), ALWAYS)
    with contextlib.suppress(RequestError):
        rig.ask(*headers)
    shown = next(rig.decisions.recent(1))
    steps = [*shown["verdicts"], *(f for p in shown["profiles"].values() for f in p["filters"])]
    return {r["name"].partition("/")[2]: r["reason"] for step in steps for r in step["removed"]}


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ("- type: decode-filter\n", {"e1": "role prefill does not serve decode"}),
        (
            "- type: prefill-filter\n",
            {
                "e0": "role decode does not serve prefill",
                "e2": "an endpoint without a role does not serve prefill",
            },
        ),
        (
            "- type: encode-filter\n",
            {
                "e0": "role decode does not serve encode",
                "e1": "role prefill does not serve encode",
                "e2": "an endpoint without a role does not serve encode",
            },
        ),
        (
            "- {type: by-label, parameters: {label: zone, validValues: [a]}}\n",
            {"e1": "has no label zone", "e2": "label zone is 'b'"},
        ),
        (
            "- {type: label-selector-filter, parameters: {matchLabels: {zone: a}}}\n",
            {"e1": "has no label zone", "e2": "label zone is 'b'"},
        ),
        (
            """
- type: label-selector-filter
  parameters: {matchExpressions: [{key: llm-d.ai/role, operator: NotIn, values: [prefill]}]}
""",
            {"e1": "label llm-d.ai/role is 'prefill'"},
        ),
    ],
)
def test_labels(plugins: str, expected: dict[str, str]) -> None:
    assert reasons(plugins) == expected


def test_the_range_of_prompt_lengths() -> None:
    plugins = "- {type: context-length-aware, parameters: {label: range, enableFiltering: true}}\n"
    assert reasons(plugins, labels=[{"range": "0-100"}, {"range": "50-100"}, {"range": "odd"}]) == {
        "e1": "label range is '50-100', the prompt has 2 tokens",
        "e2": "label range is 'odd', the prompt has 2 tokens",
    }


def test_the_selection_of_a_test() -> None:
    plugins = "- type: header-based-testing-filter\n"
    expected = "not named in test-epp-endpoint-selection"
    assert reasons(plugins, (TEST_SELECTION, "10.0.0.1:8000")) == {"e1": expected, "e2": expected}


def test_the_limit_that_is_exceeded_and_by_how_much() -> None:
    table = make_table(3, waiting=[5.0, 0.0, 0.0], kv_usage=[0.5, 0.95, 0.5])
    plugins = """
- type: utilization-filter
  parameters:
    conditions:
    - {metric: waiting-queue, maxValue: 2}
    - {metric: kv-cache-utilization, maxValue: 0.9}
    - {metric: active-requests, maxValue: 0}
"""
    rig = Rig(plugins, table, ALWAYS)
    table.inflight[0] = 1
    rig.ask()
    (step,) = next(rig.decisions.recent(1))["profiles"]["default"]["filters"]
    assert [r["reason"] for r in step["removed"]] == [
        "waiting-queue 5 > 2, active-requests 1 > 0",
        "kv-cache-utilization 0.95 > 0.9",
    ]


def test_the_session_that_is_elsewhere() -> None:
    table = make_table(2)
    rig = Rig("- type: session-affinity-filter\n", table, ALWAYS)
    token = "ZGVmYXVsdC9lMQ=="
    rig.ask(("x-session-token", token))
    (session,) = next(rig.decisions.recent(1))["profiles"]["default"]["filters"]
    assert [(r["name"], r["reason"]) for r in session["removed"]] == [
        ("default/e0", "the session is on default/e1")
    ]


def test_the_prefix_that_is_held_elsewhere() -> None:
    pool = make_table(3).all()
    request = make_request()
    request.put(PREFIX_MATCH, PrefixMatch(pool, np.array([9.0, 1.0, 0.0]), 10, 64))
    plugin = make_plugin(
        PrefixCacheAffinityFilter, parameters={"explorationProbability": 0, "maxTTFTPenaltyMs": 0}
    )
    left = plugin.filter(request, pool)
    assert left.slots.tolist() == [0]
    assert [plugin.reason(request, pool, pool.endpoint(i)) for i in (1, 2)] == [
        "holds 10% of the prompt, others at least 80%",
        "holds 0% of the prompt, others at least 80%",
    ]


def test_a_labelled_revision_that_was_not_drawn() -> None:
    plugins = """
- type: disaggregatedset-rollout-screener
  parameters:
    scope: {labelSelector: in-set}
    revisionGating: {mode: disabled, revisionLabelKey: revision}
    headerSelectors: [{name: revision, headerName: x-revision, labelKey: revision, mode: strict}]
"""
    assert reasons(plugins, ("x-revision", "2"), labels=[{"revision": "1"}, {"revision": "2"}, {}]) == {
        "e0": "label revision is '1', x-revision wants '2'",
        "e2": "has no label revision, x-revision wants '2'",
    }


class Mute(Base):
    """A filter that cannot say why."""

    info: ClassVar = PluginInfo("mute")

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        raise ValueError("forgotten")


def test_a_filter_that_fails_to_explain_costs_nothing_but_the_reason() -> None:
    pool = make_table(2).all()
    trace = DecisionTrace(Origin.SAMPLED)
    trace.screened(make_plugin(Mute), make_request(), pool, pool.where(pool.slots > 0))
    (verdict,) = trace.verdicts
    assert [(r.spec.name, r.reason) for r in verdict.removed] == [
        ("e0", "the plugin cannot say why: forgotten")
    ]
