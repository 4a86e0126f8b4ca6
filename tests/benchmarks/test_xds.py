"""What the discovery benchmark makes of its readings, and a short run of it with everything real."""

import json

import msgspec
import pytest

from benchmarks.machine import describe_machine
from benchmarks.xds import Change, XdsOptions, XdsResult, complaints, render
from cli.main import main


def result(applied: float) -> XdsResult:
    return XdsResult(
        machine=describe_machine(),
        options=XdsOptions(),
        changes=[Change("one", 0.5, applied, 0.25), Change("two", 0.5, 0.1, 0.25)],
        resident_bytes=100 * 2**20,
        idle_cores=0.01,
    )


def test_only_what_took_longer_than_promised_is_complained_about():
    assert complaints(result(2.0)) == []
    assert complaints(result(2.5)) == ["one: applied 2.50 s after publishing, promised 2"]


def test_table_and_memory():
    lines = render(result(1.0)).splitlines()
    assert lines[2].split() == ["one", "0.50", "1.00", "0.25"]
    assert lines[-1].endswith("the discovery server: 100 MiB, idle 0.010 cores")


def test_result_survives_json():
    one = result(1.0)
    assert msgspec.json.decode(msgspec.json.encode(one), type=XdsResult) == one


@pytest.mark.integration
@pytest.mark.slow
def test_short_run(tmp_path, capsys):
    file = tmp_path / "figures.json"
    assert main(["bench", "xds", "--pools=3", "--endpoints=9", "--repeat=1", f"--json={file}"]) == 0
    figures = json.loads(file.read_text())["result"]
    assert [change["what"] for change in figures["changes"]] == [
        "endpoints of one pool",
        "endpoints of every pool",
        "a new pool and its route",
        "an objective of every pool",
    ]
    assert "3 pools, 9 endpoints" in capsys.readouterr().out
