"""Endpoints with their measurements from a file: what a picker shows, and what people write by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey
from epp.datalayer.report import describe_endpoints
from epp.explain.snapshot import COLUMNS, apply_states, read_snapshot
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from tests.support.clock import ManualClock

SPEED: DataKey[float] = DataKey("Speed", "meter")


def write(folder: Path, document: Any) -> str:
    """A file with this document."""
    file = folder / "snapshot.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(file)


def table_of(specs: list[EndpointSpec]) -> EndpointTable:
    """A table with these endpoints."""
    table = EndpointTable(capacity=2)
    for spec in specs:
        table.add(spec)
    return table


def shown(table: EndpointTable, now: float) -> dict[str, Any]:
    """The page of a table."""
    health = {"ejection": None, "share": 1.0}
    page = describe_endpoints(table, ManualClock(now), 100, lambda _: "", [], lambda _: dict(health))
    plain: dict[str, Any] = json.loads(json.dumps(page))
    return plain


def test_what_a_picker_shows_comes_back_as_it_was(tmp_path: Path) -> None:
    table = table_of(
        [
            EndpointSpec("a", "ns", "10.0.0.1", 8000, {"zone": "x"}, annotations={"n": "1"}, models=("m",)),
            EndpointSpec("b", "default", "fd00::1", 80, rank=2),
            EndpointSpec("c", "default", "10.0.0.3", 8000),
        ]
    )
    for number, endpoint in enumerate(table.all().endpoints[:2], 1):
        table.begin_scrape(endpoint.slot)
        table.end_scrape(endpoint.slot, 1000.0 - number)
        for name in COLUMNS:
            getattr(table, name)[endpoint.slot] = number
        table.block_size[endpoint.slot], table.num_blocks[endpoint.slot] = 16, 1000 * number
        endpoint.active_models, endpoint.max_active_models = frozenset({"lora"}), 4
    table.kv_usage[:2] = 0.25, 0.5
    table.expire(1000.0, 1.6)
    table.attributes.put(0, SPEED, 3.5)
    before = shown(table, 1000.0)

    snapshot = read_snapshot(write(tmp_path, before))
    assert snapshot.warnings == []
    copy = table_of(snapshot.specs)
    assert apply_states(copy, snapshot.states, 5000.0, [SPEED]) == []
    after = shown(copy, 5000.0)
    assert [row.pop("metricsAddress") for row in after["endpoints"]]
    assert [row.pop("metricsAddress") for row in before["endpoints"]]
    assert after == before
    assert before["fresh"] == 1


def test_what_is_left_out_is_as_in_an_idle_server_just_measured(tmp_path: Path) -> None:
    snapshot = read_snapshot(
        write(tmp_path, 'endpoints: [{address: "10.0.0.1:80", waiting: 2}, {address: "10.0.0.2:80"}]')
    )
    table = table_of([*snapshot.specs, EndpointSpec("new", "default", "10.0.0.9", 80)])
    apply_states(table, snapshot.states, 50.0, [])
    assert table.waiting[:3].tolist() == [2.0, 0.0, 0.0]
    assert table.fresh[:3].tolist() == [True] * 3
    assert table.updated_at[:3].tolist() == [50.0] * 3
    assert (table.stale, table.warming) == (0, 0)


def test_endpoints_that_are_gone_or_ejected_or_never_measured_are_so_again(tmp_path: Path) -> None:
    rows = [
        {"address": "10.0.0.1:80", "listens": False},
        {"address": "10.0.0.2:80", "ejection": {"state": "ejected"}},
        {"address": "10.0.0.3:80", "ejection": {"state": "watched"}},
        {"address": "10.0.0.4:80", "dataAgeMs": None},
    ]
    snapshot = read_snapshot(write(tmp_path, {"endpoints": rows}))
    table = table_of(snapshot.specs)
    apply_states(table, snapshot.states, 50.0, [])
    assert (table.gone.tolist(), table.absent) == ([True, False, False, False], 1)
    assert (table.ejected.tolist(), table.barred) == ([False, True, False, False], 1)
    assert (table.fresh.tolist(), table.stale) == ([False, True, True, False], 2)
    assert table.updated_at[3] == 0


@pytest.mark.parametrize("value", [{"x": 1}, 10**400, float("nan"), True], ids=lambda value: str(value)[:5])
def test_attributes_that_are_no_numbers_are_left_out_and_said(tmp_path: Path, value: object) -> None:
    rows = [{"address": "10.0.0.1:80", "attributes": {"Speed/meter": {"x": 1}, "Other/x": {}}}]
    snapshot = read_snapshot(write(tmp_path, {"endpoints": rows, "truncated": True}))
    assert [w.partition(": ")[2] for w in snapshot.warnings] == [
        "is truncated; ask the page for more with ?limit="
    ]
    table = table_of(snapshot.specs)
    snapshot.states["10.0.0.1:80"].attributes["Speed/meter"] = value
    assert apply_states(table, snapshot.states, 50.0, [SPEED]) == [
        "attribute Speed/meter is not a number and is left out"
    ]


@pytest.mark.parametrize(
    ("document", "complaints"),
    [
        ("[]", ["must be a mapping with the list `endpoints`, as /debug/endpoints shows"]),
        ("{}", ["must be a mapping with the list `endpoints`, as /debug/endpoints shows"]),
        ({"endpoints": [3]}, ["endpoints[0]: 3 is not a mapping with an address"]),
        ({"endpoints": [{}]}, ["endpoints[0].address: is required"]),
        ({"endpoints": [{"address": "a"}]}, ["endpoints[0].address: 'a' is not written as ip:port"]),
        (
            {"endpoints": [{"address": "a:80"}]},
            ["endpoints[0].address: 'a' is not an IPv4 or IPv6 address"],
        ),
        (
            {"endpoints": [{"address": "1.1.1.1:8", "wating": 1}, {"address": "1.1.1.2:8", "waiting": -1}]},
            [
                'endpoints[0].wating: unknown field (did you mean "waiting"?)',
                "endpoints[1].waiting: ",
            ],
        ),
        (
            {
                "endpoints": [
                    {"address": "1.1.1.1:8", "waiting": 1e300, "inflight": 10**400, "blocks": 1 << 63}
                ]
            },
            [
                "endpoints[0].waiting: expected float <= ",
                "endpoints[0].inflight: ",
                "endpoints[0].blocks: expected int, got float",
            ],
        ),
        (
            {"endpoints": [{"address": "1.1.1.1:8"}, {"address": "1.1.1.1:8"}]},
            ["endpoints[1].address: 1.1.1.1:8 is listed before"],
        ),
    ],
)
def test_everything_that_is_wrong_is_told_with_its_place(
    tmp_path: Path, document: Any, complaints: list[str]
) -> None:
    file = write(tmp_path, document)
    with pytest.raises(ConfigError) as caught:
        read_snapshot(file)
    errors = getattr(caught.value, "errors", [caught.value])
    assert len(errors) == len(complaints)
    for error, complaint in zip(errors, complaints, strict=True):
        assert str(error).startswith(f"{file}: {complaint}")
