"""Windows disturbed by other processes are measured again."""

import msgspec
import pytest

from benchmarks import extproc
from benchmarks.cpu import MachineTicks
from benchmarks.extproc_plan import ExtProcOptions, Scenario, Server, Variant
from tests.benchmarks.test_extproc_report import measurement

OPTIONS = ExtProcOptions(paced_rate=0, large_body_bytes=0, sse_chunks=0, repeat=2)
ALONE = Variant(Server.NONE, None)


class FakeRig:
    """Answers every measurement with the next disturbance."""

    def __init__(self, options: ExtProcOptions, *foreign_cores: float) -> None:
        self.options = options
        self.foreign_cores = iter(foreign_cores)
        self.order: list[tuple[int, str]] = []

    def measure(self, scenario: Scenario, variant: Variant, number: int):
        self.order.append((number, variant.name))
        return measurement(scenario, variant, number, foreign_cores=next(self.foreign_cores, 0.0))


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch):
    monkeypatch.setattr(extproc, "machine_ticks", lambda: MachineTicks(0, 0, 0))
    monkeypatch.setattr(extproc, "QUIET_SAMPLE_S", 0.001)


def foreign(rig: FakeRig) -> float:
    (scenario,) = rig.options.scenarios()
    return extproc.measure_undisturbed(rig, scenario, ALONE, 1).foreign_cores


def test_every_round_measures_every_variant_in_turn():
    rig = FakeRig(OPTIONS)
    names = [variant.name for variant in OPTIONS.variants()]
    assert len(extproc.measure_all(rig)) == 10
    assert rig.order == [(number, name) for number in (1, 2) for name in names]


def test_every_window_counts_unless_quiet_is_asked_for():
    assert foreign(FakeRig(OPTIONS, 1.5)) == 1.5


def test_disturbed_window_is_measured_again():
    rig = FakeRig(msgspec.structs.replace(OPTIONS, quiet=0.2), 0.9, 0.1, 0.0)
    assert foreign(rig) == 0.1
    assert len(rig.order) == 2


def test_quietest_window_counts_when_none_is_quiet():
    rig = FakeRig(msgspec.structs.replace(OPTIONS, quiet=0.2), 0.9, 0.5, 0.7, 0.8)
    assert foreign(rig) == 0.5
    assert len(rig.order) == 4
