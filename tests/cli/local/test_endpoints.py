"""Endpoints on their way from the simulator's file to Envoy's."""

import json
from pathlib import Path

import pytest

from cli.local.endpoints import FILE_CAP_BYTES, ClusterFile, read_endpoints
from cli.local.plan import PoolPlan
from tests.cli.local.plans import two_pools


@pytest.fixture
def pool(tmp_path: Path) -> PoolPlan:
    pool = two_pools(tmp_path).pools[0]
    pool.folder.mkdir(parents=True)
    return pool


def document(*ports: int) -> str:
    """A file with an endpoint per port."""
    return "endpoints:\n" + "".join(f"- {{name: e, address: 127.0.0.1, port: '{port}'}}\n" for port in ports)


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
        pytest.param("endpoints: [", "not YAML", id="broken"),
        pytest.param("endpoints: [{port: '1'}]", "Object missing required field `address`", id="no address"),
        pytest.param("endpoints: [{address: a, port: x}]", "invalid literal", id="no port"),
        pytest.param("- 1", "Expected `object`, got `array`", id="other shape"),
        pytest.param("#" * (FILE_CAP_BYTES + 1), "larger than 1048576 bytes", id="huge"),
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
    assert line.startswith(f"small: {pool.endpoints_file} is not usable, keeping 1 endpoints: ")
    assert complaint in line


def test_absent_file_changes_nothing(pool: PoolPlan):
    said: list[str] = []
    cluster = ClusterFile(pool, said.append)
    cluster.write()
    cluster.refresh()
    assert (written(pool), said) == (("1", []), [])


def test_numeric_ports_are_accepted(pool: PoolPlan):
    pool.endpoints_file.write_text("endpoints: [{address: 10.0.0.1, port: 81}, {address: 10.0.0.2}]")
    assert read_endpoints(pool.endpoints_file) == [("10.0.0.1", 81), ("10.0.0.2", 8000)]
