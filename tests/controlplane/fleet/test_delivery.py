"""What is delivered is what a picker reads."""

from __future__ import annotations

from pathlib import Path

from controlplane.fleet.local.delivery import FileDelivery
from controlplane.fleet.local.wanted import WantedPool
from controlplane.fleet.specs import Driver
from epp.objects.documents import Scope
from epp.objects.files import ObjectFiles, Reading
from epp.objects.model import InferenceObjective
from epp.plugins.endpoint_file import read_endpoint_file
from tests.support.controlplane import ENDPOINTS, REWRITE, objective

POOL = WantedPool(
    name="pool",
    driver=Driver(type="local"),
    endpoints=ENDPOINTS["spec"]["endpoints"],
    objects=[objective(), REWRITE],
)
SIMULATED = [{"name": "s", "address": "127.0.0.1", "port": 9000, "labels": {"a": "b"}}]


def test_pickers_read_what_is_delivered(tmp_path: Path) -> None:
    delivery = FileDelivery(tmp_path)
    delivery.deliver(POOL, SIMULATED)
    assert delivery.flags() == [
        *("--endpoints-file", str(tmp_path / "endpoints.yaml")),
        *("--objects-file", str(tmp_path / "objects.yaml")),
    ]
    found = read_endpoint_file(str(tmp_path / "endpoints.yaml")).endpoints(lambda _: ())
    assert found.problems == []
    assert [spec.key for spec in found.endpoints] == [
        *("127.0.0.1:9000", "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.2:8001"),
    ]
    reading = ObjectFiles(str(tmp_path / "objects.yaml"), Scope("pool")).read(Reading())
    assert (reading.problems, reading.skipped) == ((), ())
    assert list(reading.objectives()) == [InferenceObjective("interactive", 10)]
    assert [rewrite.name for rewrite in reading.rewrites()] == ["chat"]


def test_an_empty_pool_is_delivered_too(tmp_path: Path) -> None:
    FileDelivery(tmp_path).deliver(WantedPool(name="pool", driver=Driver(type="local")), [])
    assert read_endpoint_file(str(tmp_path / "endpoints.yaml")).endpoints(lambda _: ()).endpoints == []
    assert ObjectFiles(str(tmp_path / "objects.yaml"), Scope("pool")).read(Reading()) == Reading()


def test_files_are_written_only_when_they_say_something_new(tmp_path: Path) -> None:
    delivery = FileDelivery(tmp_path)
    delivery.deliver(POOL, [])
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    delivery.deliver(POOL, SIMULATED)
    after = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert after["objects.yaml"] == before["objects.yaml"]
    assert after["endpoints.yaml"] != before["endpoints.yaml"]
    assert set(after) == {"endpoints.yaml", "objects.yaml"}
