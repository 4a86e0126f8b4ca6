"""What goes from the file of endpoints goes from the running pool: ranks, servers, labels."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from epp.app import Picker
from epp.options import EppOptions
from tests.support.waiting import until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: active-request-scorer}
- {type: label-selector-filter, parameters: {matchLabels: {tier: gold}}}
"""
GOLD = {"tier": "gold"}


class Pool:
    """A running picker and the file that lists its endpoints."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "endpoints.yaml"
        self.list(self.entry("a", ranks=3), self.entry("b"))
        self.picker = Picker(
            EppOptions(
                grpc_port=0,
                grpc_health_port=0,
                metrics_port=0,
                host="127.0.0.1",
                metrics_host="127.0.0.1",
                secure_serving=False,
                config_text=CONFIG,
                endpoints_file=str(self.file),
            )
        )

    @staticmethod
    def entry(name: str, **fields: Any) -> dict[str, Any]:
        """A server, 127.0.0.2 for ``a`` and 127.0.0.3 for ``b``."""
        address = {"a": "127.0.0.2", "b": "127.0.0.3"}[name]
        return {"name": name, "address": address, "port": 8000, "labels": GOLD, **fields}

    def list(self, *entries: dict[str, Any]) -> None:
        """Replace the file atomically."""
        new = self.file.with_suffix(".new")
        new.write_text(
            json.dumps({"apiVersion": "pointsman.dev/v1", "kind": "EndpointList", "endpoints": entries})
        )
        new.rename(self.file)

    def keys(self) -> set[str]:
        """Addresses in the pool."""
        return {endpoint.key for endpoint in self.picker.table.all().endpoints}


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    """A pool of a server with three ranks and one with one."""
    pool = Pool(tmp_path)
    await pool.picker.start()
    yield pool
    await pool.picker.stop()


async def test_ranks_that_are_no_longer_listed_are_gone(pool: Pool) -> None:
    assert pool.keys() == {"127.0.0.2:8000", "127.0.0.2:8001", "127.0.0.2:8002", "127.0.0.3:8000"}
    pool.list(pool.entry("a"), pool.entry("b"))
    await until(lambda: pool.keys() == {"127.0.0.2:8000", "127.0.0.3:8000"})
    assert pool.picker.table.inflight.sum() == 0


async def test_ranks_that_are_not_active_are_gone(pool: Pool) -> None:
    active = {"llm-d.ai/active-ports": "8001"}
    pool.list(pool.entry("a", ranks=3, annotations=active), pool.entry("b"))
    await until(lambda: pool.keys() == {"127.0.0.2:8001", "127.0.0.3:8000"})


async def test_a_server_that_is_no_longer_listed_is_gone(pool: Pool) -> None:
    pool.list(pool.entry("b"))
    await until(lambda: pool.keys() == {"127.0.0.3:8000"})


async def test_a_server_whose_label_has_changed_is_no_longer_selected(pool: Pool) -> None:
    pool.list(pool.entry("a", labels={"tier": "silver"}), pool.entry("b"))
    await until(lambda: pool.keys() == {"127.0.0.2:8000", "127.0.0.3:8000"})
    graph, candidates = pool.picker.current.graph, pool.picker.table.all()
    ((_, selector),) = graph.profiles["default"].filters
    kept = selector.filter(None, candidates)  # type: ignore[arg-type]  # it looks at labels alone
    assert [endpoint.key for endpoint in kept.endpoints] == ["127.0.0.3:8000"]
