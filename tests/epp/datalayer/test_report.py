"""The endpoint table as the admin page shows it."""

from dataplane.plugin.base import DataKey
from epp.datalayer.report import describe_endpoints
from epp.interfaces.attributes import TOPOLOGY, Topology
from epp.interfaces.endpoint import EndpointSpec, EndpointTable

HERE = {"host": "h", "rack": "", "zone": "z", "region": ""}


def test_the_table_is_described_with_age_and_problems():
    table = EndpointTable()
    fresh = table.add(
        EndpointSpec(
            "a",
            "default",
            "10.0.0.1",
            8000,
            {"role": "decode"},
            metrics_host="10.0.0.1:9400",
            rank=1,
            models=("m",),
            annotations={"note": "x"},
        )
    )
    table.add(EndpointSpec("b", "default", "fd00::1", 8000))
    table.waiting[fresh.slot], table.kv_usage[fresh.slot] = 3, 0.5
    table.block_size[fresh.slot], table.num_blocks[fresh.slot] = 16, 1000
    fresh.active_models = frozenset({"y", "x"})
    table.book(fresh)
    table.begin_scrape(fresh.slot)
    table.end_scrape(fresh.slot, 99.5)
    table.annotate(fresh, DataKey("Heat", "thermometer"), 21)
    table.annotate(fresh, TOPOLOGY.by("t"), Topology(**HERE))
    shown = describe_endpoints(
        table, lambda: 100.0, 10, lambda row: f"{row.spec.name}?", ["bad"], lambda row: {"share": 1.0}
    )
    assert shown == {
        "total": 2,
        "fresh": 1,
        "truncated": False,
        "discoveryProblems": ["bad"],
        "endpoints": [
            {
                "name": "a",
                "namespace": "default",
                "address": "10.0.0.1:8000",
                "labels": {"role": "decode"},
                "annotations": {"note": "x"},
                "models": ["m"],
                "rank": 1,
                "metricsAddress": "10.0.0.1:9400",
                "fresh": True,
                "trust": 1.0,
                "listens": True,
                "dataAgeMs": 500.0,
                "problem": "a?",
                "waiting": 3.0,
                "running": 0.0,
                "kvUsage": 0.5,
                "inflight": 1,
                "inflightTokens": 0,
                "unseen": 0,
                "blockSizeTokens": 16,
                "blocks": 1000,
                "activeModels": ["x", "y"],
                "waitingModels": [],
                "maxActiveModels": 0,
                "attributes": {"Heat/thermometer": 21.0, "Topology/t": dict(HERE)},
                "share": 1.0,
            },
            {
                "name": "b",
                "namespace": "default",
                "address": "[fd00::1]:8000",
                "labels": {},
                "annotations": {},
                "models": [],
                "rank": 0,
                "metricsAddress": "[fd00::1]:8000",
                "fresh": False,
                "trust": 0.0,
                "listens": True,
                "dataAgeMs": None,
                "problem": "b?",
                "waiting": 0.0,
                "running": 0.0,
                "kvUsage": 0.0,
                "inflight": 0,
                "inflightTokens": 0,
                "unseen": 0,
                "blockSizeTokens": None,
                "blocks": None,
                "activeModels": [],
                "waitingModels": [],
                "maxActiveModels": 0,
                "attributes": {},
                "share": 1.0,
            },
        ],
    }
    assert describe_endpoints(table, lambda: 100.0, 1, lambda _: "", [], lambda _: {})["truncated"]
