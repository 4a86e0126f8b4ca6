"""disaggregatedset-rollout-screener: one revision per request, strict headers, what the client is told."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ServiceUnavailableError
from dataplane.headers import Headers
from dataplane.plugin.base import Stability
from dataplane.plugin.heir import bequeath
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.plugins.screeners.disaggregated_set_rollout import NO_MATCH, SHARE, RolloutScreener
from tests.support.labelled import labelled_table, names
from tests.support.pool import make_plugin, make_request, make_table
from tests.support.request_path import Rig, destination, graph_of, response, set_headers

SET, REVISION, ROLE = (f"disaggregatedset.x-k8s.io/{name}" for name in ("name", "revision", "role"))
SLICE = "disaggregatedset.x-k8s.io/slice"
SCOPE = {"labelSelector": f"{SET}=my-set"}
SELECTORS = [
    {"name": "revision", "headerName": "X-Revision", "labelKey": REVISION, "mode": "strict"},
    {"name": "slice", "headerName": "x-slice", "labelKey": SLICE, "mode": "prefer"},
]


def parameters(mode: str = "max-role", *roles: str, selectors: Sequence[Any] = SELECTORS) -> dict[str, Any]:
    gating: dict[str, Any] = {"mode": mode}
    if mode != "disabled":
        gating["requireRoles"] = {"values": list(roles or ("prefill", "decode"))}
    return {"scope": SCOPE, "headerSelectors": list(selectors), "revisionGating": gating}


def rollout(**counts: tuple[int, int]) -> EndpointTable:
    """A set with this many (prefill, decode) endpoints of each revision."""
    labels: list[dict[str, str]] = []
    for revision, numbers in counts.items():
        for role, number in zip(("prefill", "decode"), numbers, strict=True):
            labels += [{SET: "my-set", REVISION: revision, ROLE: role}] * number
    return labelled_table(labels)


def asking(**headers: str) -> InferenceRequest:
    request = make_request()
    request.headers = Headers.of([(name.replace("_", "-"), value) for name, value in headers.items()])
    return request


def revisions(screener: Any, table: EndpointTable, **headers: str) -> set[str]:
    """Revisions of what is left of the pool for one request."""
    left = screener.screen(asking(**headers), table.all())
    return {endpoint.spec.labels.get(REVISION, "") for endpoint in left.endpoints}


def series(screener: Any, metric: str) -> dict[tuple[str, ...], float]:
    return {tuple(labels): value for labels, value in screener.metric_series(metric)}


@pytest.mark.parametrize(
    ("mode", "roles", "shares"),
    [
        ("max-role", ("prefill", "decode"), {"a": 0.9, "b": 0.1}),
        ("sum", ("prefill", "decode"), {"a": 11 / 13, "b": 2 / 13}),
        ("max-role", ("prefill",), {"a": 2 / 3, "b": 1 / 3}),
    ],
)
def test_shares_follow_the_endpoints_of_the_roles(mode: str, roles: Sequence[str], shares: dict[str, float]):
    screener = make_plugin(RolloutScreener, rollout(a=(2, 9), b=(1, 1)), parameters(mode, *roles))
    assert screener.shares() == pytest.approx(shares)
    assert series(screener, SHARE) == pytest.approx({(mode, r): share for r, share in shares.items()})


def test_the_first_role_wins_among_equally_numerous_ones():
    table = rollout(a=(3, 1), b=(1, 3))
    assert make_plugin(RolloutScreener, table, parameters("max-role", "prefill", "decode")).shares() == {
        "a": 0.75,
        "b": 0.25,
    }
    assert make_plugin(RolloutScreener, table, parameters("max-role", "decode", "prefill")).shares() == {
        "a": 0.25,
        "b": 0.75,
    }


def test_each_request_gets_the_endpoints_of_one_revision_drawn_by_share():
    table = rollout(a=(2, 9), b=(1, 1))
    screener = make_plugin(RolloutScreener, table, parameters())
    drawn: Counter[str] = Counter()
    for _ in range(2000):
        left = screener.screen(make_request(), table.all())
        (revision,) = {endpoint.spec.labels[REVISION] for endpoint in left.endpoints}
        assert len(left) == {"a": 11, "b": 2}[revision]
        drawn[revision] += 1
    assert drawn["a"] / 2000 == pytest.approx(0.9, abs=0.03)


def test_a_revision_without_a_required_role_gets_nothing():
    table = rollout(a=(2, 9), b=(0, 5))
    screener = make_plugin(RolloutScreener, table, parameters("sum"))
    assert screener.shares() == {"a": 1.0, "b": 0.0}
    assert {frozenset(revisions(screener, table)) for _ in range(100)} == {frozenset({"a"})}
    assert revisions(screener, table, x_revision="b") == set()


def test_an_endpoint_that_is_gone_or_ejected_does_not_count():
    table = rollout(a=(1, 2), b=(1, 2))
    screener = make_plugin(RolloutScreener, table, parameters("sum"))
    assert screener.shares() == {"a": 0.5, "b": 0.5}
    table.distrust(0, gone=True)
    assert screener.shares() == {"a": 0.0, "b": 1.0}
    table.reached(0, 0.0)
    assert screener.shares() == {"a": 0.5, "b": 0.5}
    table.eject(5)
    assert screener.shares() == {"a": 0.6, "b": 0.4}
    table.readmit(5)
    assert screener.shares() == {"a": 0.5, "b": 0.5}


def test_shares_follow_the_table():
    table = rollout(a=(1, 1))
    screener = make_plugin(RolloutScreener, table, parameters("sum"))
    assert screener.shares() == {"a": 1.0}
    for i, role in enumerate(("prefill", "decode")):
        labels = {SET: "my-set", REVISION: "b", ROLE: role}
        table.add(EndpointSpec(f"new{i}", "default", f"10.1.0.{i}", 8000, labels))
    assert screener.shares() == {"a": 0.5, "b": 0.5}
    table.remove("default/e0")
    assert screener.shares() == {"a": 0.0, "b": 1.0}


def test_only_the_set_in_scope_counts_and_is_kept():
    table = rollout(a=(1, 1))
    table.add(EndpointSpec("other", "default", "10.1.0.1", 8000, {SET: "x", REVISION: "a", ROLE: "decode"}))
    table.add(EndpointSpec("plain", "default", "10.1.0.2", 8000))
    screener = make_plugin(RolloutScreener, table, parameters("sum"))
    assert screener.shares() == {"a": 1.0}
    assert names(screener.screen(make_request(), table.all())) == ["e0", "e1"]


def test_coverage_is_the_sets_but_a_revision_must_be_among_the_candidates():
    table = rollout(a=(1, 1), b=(1, 1))
    screener = make_plugin(RolloutScreener, table, parameters("sum"))
    prefill_of_b = table.all().where(table.all().slots == 2)
    for _ in range(20):
        assert names(screener.screen(make_request(), prefill_of_b)) == ["e2"]


def test_a_strict_header_is_obeyed_or_nobody_is_left():
    table = rollout(a=(1, 1), b=(1, 1))
    screener = make_plugin(RolloutScreener, table, parameters())
    assert revisions(screener, table, x_revision="b") == {"b"}
    assert series(screener, NO_MATCH) == {("revision",): 0}
    assert revisions(screener, table, x_revision="c") == set()
    assert revisions(screener, table, x_revision="B") == set()
    assert series(screener, NO_MATCH) == {("revision",): 2}
    assert len(revisions(screener, table, x_revision="")) == 1


def test_a_preference_screens_nobody():
    table = rollout(a=(1, 1))
    screener = make_plugin(RolloutScreener, table, parameters())
    assert revisions(screener, table, x_slice="7") == {"a"}


def test_without_gating_only_strict_headers_narrow():
    table = rollout(a=(0, 1), b=(1, 0))
    screener = make_plugin(RolloutScreener, table, parameters("disabled"))
    assert screener.screen(make_request(), table.all()) is table.all()
    assert revisions(screener, table, x_revision="b") == {"b"}
    assert series(screener, SHARE) == {}


# -- in the picker ------------------------------------------------------------------------------------------


def plugins(mode: str = "sum") -> str:
    gating = f"{{mode: {mode}, requireRoles: {{values: [prefill, decode]}}}}"
    return f"""
- type: disaggregatedset-rollout-screener
  parameters:
    scope: {{labelSelector: "{SET}=my-set"}}
    headerSelectors:
    - {{name: revision, headerName: x-revision, labelKey: {REVISION}, mode: strict}}
    - {{name: slice, headerName: x-slice, labelKey: {SLICE}, mode: prefer}}
    revisionGating: {gating}
"""


def test_an_unmatched_header_is_503():
    rig = Rig(plugins(), rollout(a=(1, 1)))
    with pytest.raises(ServiceUnavailableError, match="screeners eliminated all endpoint candidates"):
        rig.ask(("x-revision", "c"))
    assert rig.table.inflight.sum() == 0
    rig.table.eject(0)
    with pytest.raises(ServiceUnavailableError):
        rig.ask(("x-revision", "c"))
    screener = rig.graph.screeners[0]
    assert series(screener, NO_MATCH) == {("revision",): 2}


def test_a_revision_that_is_complete_with_ejected_endpoints_only_is_better_than_none():
    rig = Rig(plugins(), rollout(a=(1, 2)))
    rig.table.eject(0)
    assert destination(rig.ask()[1]) in {f"10.0.0.{number}:8000" for number in (1, 2, 3)}
    rig = Rig(plugins(), rollout(a=(1, 1), b=(1, 1)))
    rig.table.eject(0)
    assert {destination(rig.ask()[1]) for _ in range(20)} <= {"10.0.0.3:8000", "10.0.0.4:8000"}


def test_a_set_without_a_complete_revision_is_503():
    with pytest.raises(ServiceUnavailableError, match="screeners eliminated all endpoint candidates"):
        Rig(plugins(), rollout(a=(2, 0))).ask()


def test_the_response_tells_the_labels_of_who_served():
    labels = [
        {SET: "my-set", REVISION: "a", ROLE: role, SLICE: number}
        for role, number in (("prefill", "7"), ("decode", "8"))
    ]
    rig = Rig(plugins(), labelled_table(labels))
    for served, number in (("10.0.0.1:8000", b"7"), ("10.0.0.2:8000", b"8")):
        exchange, _ = rig.ask(("x-slice", "5"))
        told = set_headers(exchange.on_response_headers(response(served=served)))
        assert (told["x-revision"], told["x-slice"]) == (b"a", number)


def test_the_numbers_are_exposed_and_survive_a_reload():
    rig = Rig(plugins(), rollout(a=(1, 3), b=(1, 1)))
    with pytest.raises(ServiceUnavailableError):
        rig.ask(("x-revision", "c"))
    successor = graph_of(plugins(), rig.table)
    bequeath(rig.graph.instances, successor.instances)
    rig.metrics.plugins.watch(successor.instances.values())
    exposed = "".join(rig.metrics.numbers.expose())
    labels = 'plugin_name="disaggregatedset-rollout-screener",plugin_type="disaggregatedset-rollout-screener"'
    assert f'llm_d_epp_{NO_MATCH}{{{labels},selector="revision"}} 1\n' in exposed
    share = f'llm_d_epp_{SHARE}{{{labels},mode="sum",revision='
    assert f'{share}"a"}} {4 / 6!r}\n' in exposed
    assert f"# TYPE llm_d_epp_{NO_MATCH} counter\n" in exposed


def test_the_plugin_is_experimental():
    assert RolloutScreener.info.stability is Stability.ALPHA


GATING = {"mode": "disabled"}


NO_ROLES = "revisionGating.requireRoles.values: mode sum needs at least one role, such as prefill and decode"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "scope: is required"),
        ({"scope": {}, "revisionGating": GATING}, "scope.labelSelector: is required"),
        ({"scope": SCOPE}, "revisionGating: is required"),
        ({"scope": SCOPE, "revisionGating": {}}, "revisionGating.mode: is required"),
        (
            {"scope": SCOPE, "revisionGating": {"mode": "max"}},
            "revisionGating.mode: must be one of sum, max-role, disabled; got 'max'",
        ),
        (
            {"scope": SCOPE, "revisionGating": {"mode": "sum"}},
            NO_ROLES,
        ),
        (parameters("sum", "decode", "decode"), "revisionGating.requireRoles.values: names a role twice"),
        (
            parameters("disabled", selectors=[SELECTORS[0], SELECTORS[0]]),
            "headerSelectors[1].name: is taken by another selector",
        ),
        (
            parameters("disabled", selectors=[SELECTORS[0], {**SELECTORS[1], "headerName": "x-revision"}]),
            "headerSelectors[1].headerName: is taken by another selector",
        ),
    ],
)
def test_impossible_parameters_are_refused(given: Mapping[str, Any] | None, problem: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(RolloutScreener, make_table(1), given)
    assert f"parameters.{problem}" in [str(error) for error in caught.value.errors]


def test_a_scope_that_is_no_selector_is_refused():
    with pytest.raises(ConfigErrors, match=r"parameters.scope.labelSelector: 'a b' is no label selector"):
        make_plugin(RolloutScreener, None, {"scope": {"labelSelector": "a b"}, "revisionGating": GATING})
