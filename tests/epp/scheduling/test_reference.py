"""Decisions of many plugins together against a reference that is as simple as the documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.scheduling import FiltersDrainedError
from tests.support.request_path import Rig, request_of

ROLE = "llm-d.ai/role"


class Server(msgspec.Struct, frozen=True):
    """An endpoint as the reference sees it."""

    waiting: int
    running: int
    kv_usage: float
    inflight: int
    adapters: frozenset[str]
    most_adapters: int
    zone: str | None
    role: str | None

    @property
    def labels(self) -> dict[str, str]:
        found = {"zone": self.zone, ROLE: self.role}
        return {key: value for key, value in found.items() if value is not None}


SERVERS = st.lists(
    st.builds(
        Server,
        waiting=st.integers(0, 6) | st.integers(0, 30) | st.just(10**9),
        running=st.integers(0, 6),
        kv_usage=st.sampled_from([0.0, 0.25, 0.5, 0.99, 1.0]),
        inflight=st.integers(0, 8),
        adapters=st.frozensets(st.sampled_from(["m", "n"])),
        most_adapters=st.integers(0, 3),
        zone=st.sampled_from([None, "a", "b"]),
        role=st.sampled_from([None, "decode", "prefill", "both", "encode", "unheard-of"]),
    ),
    min_size=1,
    max_size=24,
)

Servers = Sequence[Server]
Document = Mapping[str, Any]


def fewer(values: Sequence[float], least_spread: float = 0.0) -> list[float]:
    spread = max(max(values) - min(values), least_spread)
    return [1.0 if not spread else 1.0 - (value - min(values)) / spread for value in values]


def active(servers: Servers, idle: int, busy: float) -> list[float]:
    most = max(server.inflight for server in servers)
    return [1.0 if s.inflight <= idle else (most - s.inflight) / most * busy for s in servers]


def lora(server: Server) -> float:
    if "m" in server.adapters:
        return 1.0
    return 0.8 if len(server.adapters) < server.most_adapters else 0.0


Scorer = tuple[str, dict[str, Any], Callable[[Servers], list[float]]]
SCORERS: Sequence[Scorer] = (
    ("queue-scorer", {}, lambda found: fewer([s.waiting for s in found], 5.0)),
    ("queue-scorer", {"minSpread": 0}, lambda found: fewer([s.waiting for s in found])),
    ("running-requests-size-scorer", {}, lambda found: fewer([s.running for s in found], 5.0)),
    ("running-requests-size-scorer", {"minSpread": 0}, lambda found: fewer([s.running for s in found])),
    ("kv-cache-utilization-scorer", {}, lambda found: [1.0 - s.kv_usage for s in found]),
    ("load-aware-scorer", {"threshold": 8}, lambda found: [0.5 * (1 - min(s.waiting, 8) / 8) for s in found]),
    (
        "active-request-scorer",
        {"idleThreshold": 2, "maxBusyScore": 0.5},
        lambda found: active(found, 2, 0.5),
    ),
    ("active-request-scorer", {}, lambda found: active(found, 0, 1.0)),
    (
        "header-label-affinity-scorer",
        {"headerName": "X-Zone", "labelKey": "zone"},
        lambda found: [float(s.zone == "a") for s in found],
    ),
    ("lora-affinity-scorer", {}, lambda found: [lora(s) for s in found]),
)

Filter = tuple[str, dict[str, Any], Callable[[Server], bool]]
FILTERS: Sequence[Filter] = (
    ("label-selector-filter", {"matchLabels": {"zone": "a"}}, lambda s: s.zone == "a"),
    (
        "label-selector-filter",
        {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]},
        lambda s: s.zone != "a",
    ),
    (
        "by-label",
        {"label": "zone", "validValues": ["b"], "allowsNoLabel": True},
        lambda s: s.zone in ("b", None),
    ),
    ("decode-filter", {}, lambda s: s.role in ("decode", "both", None)),
    ("prefill-filter", {}, lambda s: s.role in ("prefill", "both")),
    (
        "utilization-filter",
        {
            "conditions": [
                {"metric": "waiting-queue", "maxValue": 9},
                {"metric": "active-requests", "maxValue": 4},
            ]
        },
        lambda s: s.waiting <= 9 and s.inflight <= 4,
    ),
    (
        "utilization-filter",
        {"conditions": [{"metric": "kv-cache-utilization", "maxValue": 0.5}]},
        lambda s: s.kv_usage <= 0.5,
    ),
)

USED = st.tuples(
    st.lists(st.sampled_from(FILTERS), max_size=3),
    st.lists(st.tuples(st.sampled_from(SCORERS), st.sampled_from([None, 0.0, 0.5, 1.0, 3.0])), max_size=5),
)
PICKERS = st.tuples(
    st.sampled_from(["max-score-picker", "random-picker", "weighted-random-picker"]),
    st.sampled_from([-1, 1, 2, 100]),
)


def rig_of(
    servers: Servers, plugins: Sequence[Mapping[str, Any]], profile: Sequence[Mapping[str, Any]]
) -> Rig:
    """A request path over these servers, all freshly measured."""
    table = EndpointTable()
    for number, server in enumerate(servers):
        at = EndpointSpec(f"e{number}", "default", f"10.0.0.{number + 1}", 8000, server.labels)
        endpoint = table.add(at)
        slot = endpoint.slot
        table.begin_scrape(slot)
        table.waiting[slot], table.running[slot] = server.waiting, server.running
        table.kv_usage[slot], table.inflight[slot] = server.kv_usage, server.inflight
        endpoint.active_models, endpoint.max_active_models = server.adapters, server.most_adapters
        table.end_scrape(slot, 0.0)
    listed = "".join(f"- {json.dumps(plugin)}\n" for plugin in plugins)
    profiles = json.dumps([{"name": "default", "plugins": profile}])
    return Rig(f"{listed}schedulingProfiles: {profiles}\n", table)


@settings(max_examples=250)
@given(SERVERS, USED, PICKERS, st.booleans())
def test_a_decision_is_what_the_documentation_says(
    servers: list[Server],
    used: tuple[list[Filter], list[tuple[Scorer, float | None]]],
    picker: tuple[str, int],
    scorers_first: bool,
) -> None:
    filters, scorers = used
    plugins: list[dict[str, Any]] = [{"type": picker[0], "parameters": {"maxNumOfEndpoints": picker[1]}}]
    profile: list[dict[str, Any]] = [{"pluginRef": picker[0]}]
    for number, (kind, parameters, _) in enumerate(filters):
        plugins.append({"type": kind, "name": f"f{number}", "parameters": parameters})
        profile.append({"pluginRef": f"f{number}"})
    for number, ((kind, parameters, _), weight) in enumerate(scorers):
        plugins.append({"type": kind, "name": f"s{number}", "parameters": parameters})
        profile.append({"pluginRef": f"s{number}"} | ({} if weight is None else {"weight": weight}))
    if scorers_first:
        profile.reverse()  # filters run first wherever they stand; their order does not matter here
    rig = rig_of(servers, plugins, profile)
    left = [n for n, server in enumerate(servers) if all(keeps(server) for _, _, keeps in filters)]
    if not left:
        with pytest.raises(FiltersDrainedError):
            rig.ask(("x-zone", "a"))
        return
    here = [servers[n] for n in left]
    totals = dict.fromkeys(left, 0.0)
    for (_, _, score), weight in scorers:
        for n, part in zip(left, score(here), strict=True):
            totals[n] += part * (1.0 if weight is None else weight)

    exchange, _ = rig.ask(("x-zone", "a"))
    result = exchange._admitted.result.results["default"]  # type: ignore[union-attr]  # it is admitted
    assert result is not None
    assert request_of(exchange).model == "m"
    found = [int(endpoint.spec.name[1:]) for endpoint in result.candidates.endpoints]
    assert found == left
    assert dict(zip(found, result.totals.tolist(), strict=True)) == pytest.approx(totals)

    picked = [int(endpoint.spec.name[1:]) for endpoint in result.endpoints]
    assert len(set(picked)) == len(picked) == min(max(1, picker[1]), len(left))
    assert set(picked) <= set(left)
    if picker[0] == "max-score-picker":
        best = sorted(totals.values(), reverse=True)[: len(picked)]
        assert [totals[n] for n in picked] == pytest.approx(best)
    if picker[0] == "weighted-random-picker":
        positive = [n for n in left if totals[n] > 1e-12]
        assert set(picked) <= set(positive) or set(picked) >= set(positive)
