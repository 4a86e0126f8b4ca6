"""Endpoints on their way from the simulator's file to Envoy's."""

import json
from pathlib import Path

import pytest

from cli.local.endpoints import ClusterFile
from cli.local.plan import PoolPlan
from tests.cli.local.plans import two_pools


@pytest.fixture
def pool(tmp_path: Path) -> PoolPlan:
    pool = two_pools(tmp_path).pools[0]
    pool.folder.mkdir(parents=True)
    return pool


def document(*ports: int) -> str:
    """A file with an endpoint per port."""
    rows = (f"- {{name: e{port}, address: 127.0.0.1, port: '{port}'}}\n" for port in ports)
    return "endpoints:\n" + "".join(rows)


def written(pool: PoolPlan) -> tuple[str, list[int]]:
    """Version and ports of the file Envoy follows."""
    content = json.loads(pool.cluster_file.read_text())
    (resource,) = content["resources"]
    hosts = resource["endpoints"][0]["lb_endpoints"]
    ports = [host["endpoint"]["address"]["socket_address"]["port_value"] for host in hosts]
    return content["version_info"], ports


def test_first_file_has_no_endpoints(pool: PoolPlan):
    ClusterFile(pool, print).write()
    assert written(pool) == ("1", [])


def test_changes_are_carried_over_once(pool: PoolPlan):
    cluster = ClusterFile(pool, print)
    cluster.write()
    pool.endpoints_file.write_text(document(9001, 9002))
    cluster.refresh()
    assert written(pool) == ("2", [9001, 9002])
    cluster.refresh()
    assert written(pool) == ("2", [9001, 9002])
    pool.endpoints_file.write_text(document(9002))
    cluster.refresh()
    assert written(pool) == ("3", [9002])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("endpoints: [", "cannot be read: line 1", id="broken"),
        pytest.param("- 1", "must be a mapping with the list `endpoints`", id="other shape"),
        pytest.param("#" * (1 << 20) + "#", "is larger than 1048576 bytes", id="huge"),
    ],
)
def test_unusable_file_leaves_the_endpoints_and_is_said_once(pool: PoolPlan, text: str, complaint: str):
    said: list[str] = []
    cluster = ClusterFile(pool, said.append)
    pool.endpoints_file.write_text(document(9001))
    cluster.refresh()
    pool.endpoints_file.write_text(text)
    cluster.refresh()
    cluster.refresh()
    assert written(pool) == ("1", [9001])
    (line,) = said
    assert line.startswith(f"small: {pool.endpoints_file}: {complaint}")
    assert line.endswith("; keeping 1 endpoints")


def test_bad_entry_is_left_out_and_said_while_the_rest_applies(pool: PoolPlan):
    said: list[str] = []
    cluster = ClusterFile(pool, said.append)
    pool.endpoints_file.write_text(document(9001, 0, 9003))
    cluster.refresh()
    assert written(pool) == ("1", [9001, 9003])
    assert len(said) == 1
    assert "endpoints[1].port: '0' is not a port; use 1 to 65535" in said[0]


def test_file_with_only_bad_entries_keeps_the_endpoints(pool: PoolPlan):
    said: list[str] = []
    cluster = ClusterFile(pool, said.append)
    pool.endpoints_file.write_text(document(9001))
    cluster.refresh()
    pool.endpoints_file.write_text(document(0))
    cluster.refresh()
    assert (written(pool), len(said)) == (("1", [9001]), 1)


def test_file_without_entries_empties_the_cluster(pool: PoolPlan):
    cluster = ClusterFile(pool, print)
    pool.endpoints_file.write_text(document(9001))
    cluster.refresh()
    pool.endpoints_file.write_text("endpoints: []")
    cluster.refresh()
    assert written(pool) == ("2", [])


def test_absent_file_changes_nothing(pool: PoolPlan):
    said: list[str] = []
    cluster = ClusterFile(pool, said.append)
    cluster.write()
    cluster.refresh()
    assert (written(pool), said) == (("1", []), [])
