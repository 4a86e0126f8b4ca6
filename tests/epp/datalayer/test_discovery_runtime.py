"""From reported sets to rows of the table, and who hears of it."""

import asyncio
import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from epp.datalayer import discovery_runtime
from epp.datalayer.discovery_runtime import MAX_LOGGED, MAX_PROBLEMS, DiscoveryRuntime
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from tests.support.waiting import until


def spec(name: str, last: int, **labels: str) -> EndpointSpec:
    """An endpoint at 10.0.0.<last>:8000."""
    return EndpointSpec(name, "default", f"10.0.0.{last}", 8000, labels)


class Reported:
    """A discovery whose reports are put in by hand."""

    def __init__(self, *reports: DiscoveredSet | Exception) -> None:
        self.reports = list(reports)

    def load(self) -> DiscoveredSet:
        return self._next()

    def poll(self) -> DiscoveredSet | None:
        return self._next() if self.reports else None

    def _next(self) -> DiscoveredSet:
        report = self.reports.pop(0)
        if isinstance(report, Exception):
            raise report
        return report


class Heard:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        self.calls.append(f"+{endpoint.spec.name}@{endpoint.spec.address}")

    def on_endpoint_removed(self, endpoint: Endpoint) -> None:
        self.calls.append(f"-{endpoint.spec.name}@{endpoint.spec.address}")


class Broken:
    """Fails at everything."""

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        raise LookupError("broken")

    on_endpoint_removed = on_endpoint_added


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls follow one another quickly."""
    monkeypatch.setattr(discovery_runtime, "POLL_S", 0.002)


def sets(*specs: EndpointSpec, problems: tuple[str, ...] = ()) -> DiscoveredSet:
    """A report."""
    return DiscoveredSet(list(specs), list(problems))


async def applied(*reports: DiscoveredSet) -> tuple[EndpointTable, list[str]]:
    """Load the first report, poll the others; the table and what an observer heard."""
    table, heard, source = EndpointTable(), Heard(), Reported(*reports)
    runtime = DiscoveryRuntime(source, table, [heard])
    await runtime.load()
    runtime.start()
    await until(lambda: not source.reports)
    await asyncio.sleep(0.02)
    await runtime.stop()
    return table, heard.calls


async def test_endpoints_come_and_go():
    table, heard = await applied(sets(spec("a", 1), spec("b", 2)), sets(spec("b", 2), spec("c", 3)))
    assert heard == ["+a@10.0.0.1", "+b@10.0.0.2", "-a@10.0.0.1", "+c@10.0.0.3"]
    assert sorted(e.spec.name for e in table.all().endpoints) == ["b", "c"]


async def test_a_new_address_is_a_removal_and_an_addition():
    table, heard = await applied(sets(spec("a", 1)), sets(spec("a", 2)))
    assert heard == ["+a@10.0.0.1", "-a@10.0.0.1", "+a@10.0.0.2"]
    assert table.get("default/a").generation == 1


async def test_addresses_can_be_swapped():
    table, heard = await applied(sets(spec("a", 1), spec("b", 2)), sets(spec("a", 2), spec("b", 1)))
    assert heard[2:] == ["-a@10.0.0.1", "-b@10.0.0.2", "+a@10.0.0.2", "+b@10.0.0.1"]
    assert table.at("10.0.0.2:8000").spec.name == "a"


async def test_new_labels_keep_the_row_and_its_load():
    table, source = EndpointTable(), Reported(sets(spec("a", 1)), sets(spec("a", 1, role="decode")))
    heard = Heard()
    runtime = DiscoveryRuntime(source, table, [heard])
    await runtime.load()
    row = table.get("default/a")
    table.book(row)
    runtime.start()
    await until(lambda: row.spec.labels == {"role": "decode"})
    await runtime.stop()
    assert table.get("default/a") is row
    assert table.inflight[row.slot] == 1
    assert heard.calls == ["+a@10.0.0.1"]


async def test_an_unchanged_set_changes_nothing():
    table, heard = await applied(sets(spec("a", 1)), sets(spec("a", 1)))
    assert heard == ["+a@10.0.0.1"]
    assert table.version == 1


async def test_an_address_that_is_taken_is_left_out_and_said():
    table = EndpointTable()
    runtime = DiscoveryRuntime(Reported(sets(spec("a", 1), spec("b", 1))), table, [])
    await runtime.load()
    assert len(table) == 1
    assert runtime.problems == [
        "endpoint default/b is left out: 10.0.0.1:8000 already belongs to endpoint default/a"
    ]


async def test_nothing_to_start_with_is_the_callers_error():
    runtime = DiscoveryRuntime(Reported(ConfigError("nothing", path="f")), EndpointTable(), [])
    with pytest.raises(ConfigError, match="f: nothing"):
        await runtime.load()


async def test_a_broken_observer_keeps_nobody_from_hearing(caplog: pytest.LogCaptureFixture):
    heard = Heard()
    await DiscoveryRuntime(Reported(sets(spec("a", 1))), EndpointTable(), [Broken(), heard]).load()
    assert heard.calls == ["+a@10.0.0.1"]
    assert "Broken failed on a change of endpoints" in caplog.text


async def test_a_discovery_that_raises_is_asked_again(caplog: pytest.LogCaptureFixture):
    _, heard = await applied(sets(spec("a", 1)), LookupError("oops"), sets(spec("b", 2)))
    assert heard == ["+a@10.0.0.1", "-a@10.0.0.1", "+b@10.0.0.2"]
    assert "endpoint discovery failed; the endpoints there are stay" in caplog.text


async def test_problems_are_kept_and_logged_once_for_as_long_as_they_last(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    good = spec("a", 1)
    await applied(sets(good, problems=("bad x",)), sets(good, problems=("bad x",)), sets(good), sets(good))
    assert [record.getMessage() for record in caplog.records] == ["endpoint discovery: bad x"]


async def test_many_problems_are_cut_in_log_and_memory(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    problems = tuple(f"bad {i}" for i in range(MAX_PROBLEMS + 7))
    runtime = DiscoveryRuntime(Reported(sets(spec("a", 1), problems=problems)), EndpointTable(), [])
    await runtime.load()
    assert runtime.problems == [*problems[:MAX_PROBLEMS], "and 7 more"]
    assert len(caplog.records) == MAX_LOGGED + 1
    assert (
        caplog.records[-1].getMessage()
        == f"endpoint discovery: and {len(problems) - MAX_LOGGED} more problems"
    )


class Hanging(Reported):
    """A discovery whose file system does not answer any more."""

    def __init__(self, *reports: DiscoveredSet) -> None:
        super().__init__(*reports)
        self.entered, self.released = threading.Event(), threading.Event()

    def poll(self) -> DiscoveredSet | None:
        self.entered.set()
        self.released.wait()
        return None


async def test_stopping_does_not_wait_for_a_file_system_that_hangs():
    source = Hanging(sets(spec("a", 1)))
    runtime = DiscoveryRuntime(source, EndpointTable(), [])
    await runtime.load()
    runtime.start()
    await until(source.entered.is_set)
    await runtime.stop()
    assert not source.released.is_set()
    source.released.set()


async def test_stopping_leaves_no_task():
    before = asyncio.all_tasks()
    runtime = DiscoveryRuntime(Reported(sets(spec("a", 1))), EndpointTable(), [])
    await runtime.load()
    runtime.start()
    await asyncio.sleep(0.01)
    await runtime.stop()
    assert asyncio.all_tasks() == before


reports = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), max_size=4), min_size=1, max_size=6
)


@given(reports)
def test_after_any_sequence_the_table_is_the_last_set_and_observers_can_follow(
    sequence: list[dict[str, int]],
):
    table, heard = EndpointTable(), Heard()
    runtime = DiscoveryRuntime(Reported(), table, [heard])
    for report in sequence:
        unique = {last: name for name, last in report.items()}
        wanted = {name: last for last, name in unique.items()}
        runtime.apply(sets(*(spec(name, last) for name, last in wanted.items())))
        assert {e.spec.name: e.spec.address for e in table.all().endpoints} == {
            name: f"10.0.0.{last}" for name, last in wanted.items()
        }
        followed: set[str] = set()
        for call in heard.calls:
            (followed.add if call[0] == "+" else followed.remove)(call[1:])
        assert followed == {f"{name}@10.0.0.{last}" for name, last in wanted.items()}
