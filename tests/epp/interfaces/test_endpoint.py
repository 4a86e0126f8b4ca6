"""The endpoint table: rows come and go, load is booked and released, columns stay true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from epp.interfaces.endpoint import STALE_PENALTY, Booking, Endpoint, EndpointSpec, EndpointTable


def spec(i: int, address: str | None = None) -> EndpointSpec:
    return EndpointSpec(f"pod-{i}", "default", address or f"10.0.0.{i}", 8000)


def test_key_brackets_ipv6() -> None:
    assert EndpointSpec("a", "b", "fd00::1", 80).key == "[fd00::1]:80"
    assert EndpointSpec("a", "b", "10.0.0.1", 80).key == "10.0.0.1:80"


def test_all_is_one_object_until_rows_change() -> None:
    table = EndpointTable()
    table.add(spec(1))
    first = table.all()
    assert table.all() is first
    table.add(spec(2))
    assert table.all() is not first
    assert [e.spec.name for e in table.all().endpoints] == ["pod-1", "pod-2"]


def test_refuses_taken_names_and_addresses() -> None:
    table = EndpointTable()
    table.add(spec(1))
    with pytest.raises(ValueError, match="endpoint default/pod-1 exists"):
        table.add(spec(1, "10.0.0.9"))
    with pytest.raises(ValueError, match=r"10\.0\.0\.1:8000 already belongs to endpoint default/pod-1"):
        table.add(spec(2, "10.0.0.1"))
    assert len(table) == 1


def test_grows_past_its_capacity_and_keeps_values() -> None:
    table = EndpointTable(capacity=2)
    rows = [table.add(spec(i)) for i in range(1, 6)]
    table.waiting[rows[0].slot] = 7
    table.add(spec(6))
    assert table.capacity == 8
    assert table.waiting[rows[0].slot] == 7
    assert len(table.all()) == 6


def test_late_release_does_not_touch_the_successor_of_a_flapping_endpoint() -> None:
    table = EndpointTable()
    first = table.add(spec(1))
    old = [table.book(first) for _ in range(5)]
    table.remove(first.spec.id)
    second = table.add(spec(1))
    assert second.slot == first.slot
    new = [table.book(second) for _ in range(2)]
    for booking in old:
        table.release(booking)
    assert table.inflight[second.slot] == 2
    for booking in new:
        table.release(booking)
    assert table.inflight[second.slot] == 0
    assert table.unseen[second.slot] == 0


def test_queue_depth_adds_what_the_last_scrape_could_not_see() -> None:
    table = EndpointTable()
    a = table.add(spec(1))
    before = table.book(a)
    table.begin_scrape(a.slot)
    table.book(a)
    table.waiting[a.slot] = 3
    table.end_scrape(a.slot, 1.0)
    assert table.all().queue_depth().tolist() == [4.0]
    table.release(before)
    assert table.all().queue_depth().tolist() == [4.0]
    assert table.inflight[a.slot] == 1


def test_a_failed_scrape_keeps_counting_unseen_requests() -> None:
    table = EndpointTable()
    a = table.add(spec(1))
    table.begin_scrape(a.slot)
    table.end_scrape(a.slot, 1.0)
    one = table.book(a)
    table.begin_scrape(a.slot)
    two = table.book(a)
    assert table.unseen[a.slot] == 2
    table.begin_scrape(a.slot)
    table.release(one)
    table.release(two)
    assert table.unseen[a.slot] == 0
    assert table.unseen_next[a.slot] == 0


def test_stale_endpoint_looks_as_busy_as_the_busiest_fresh_one() -> None:
    table = EndpointTable()
    a, b, c = (table.add(spec(i)) for i in (1, 2, 3))
    for endpoint, waiting, usage in ((a, 4, 0.5), (b, 9, 0.2), (c, 0, 0.0)):
        table.begin_scrape(endpoint.slot)
        table.waiting[endpoint.slot], table.kv_usage[endpoint.slot] = waiting, usage
        table.end_scrape(endpoint.slot, 10.0 if endpoint is not c else 1.0)
    table.expire(15.0, 5.0)
    table.book(c)
    assert table.stale == 1
    assert table.all().queue_depth().tolist() == [4.0, 9.0, 9.0 + STALE_PENALTY + 1.0]
    assert table.all().kv_usage().tolist() == [0.5, 0.2, 0.5]


def test_trust_in_old_measurements_fades_between_once_and_twice_the_threshold() -> None:
    table = EndpointTable()
    old, busy = (table.add(spec(i)) for i in (1, 2))
    for endpoint, waiting, running, usage, when in ((old, 2, 3, 0.4, 10.0), (busy, 6, 9, 0.2, 15.0)):
        table.begin_scrape(endpoint.slot)
        table.waiting[endpoint.slot], table.running[endpoint.slot] = waiting, running
        table.kv_usage[endpoint.slot] = usage
        table.end_scrape(endpoint.slot, when)
    table.book(old)
    depths = []
    for now in (12.0, 14.0, 15.0, 16.0, 17.0):
        table.expire(now, 4.0)
        depths.append(table.all().queue_depth().tolist()[0])
    guess = 6 + STALE_PENALTY + 1  # the longest fresh queue, the penalty, one in flight
    assert depths == [3.0, 3.0, 3.0 + (guess - 3) / 4, 3.0 + (guess - 3) / 2, 3.0 + (guess - 3) * 3 / 4]
    assert table.all().running().tolist() == [3 + 6 * 3 / 4, 9.0]
    assert table.all().kv_usage().tolist() == [0.4, 0.2], "silence never improves what is known"
    table.expire(18.5, 4.0)
    assert table.all().queue_depth().tolist() == [guess, 6.0]


def test_a_refused_connection_ends_the_trust_at_once_and_a_new_measurement_restores_it() -> None:
    table = EndpointTable()
    a, b = (table.add(spec(i)) for i in (1, 2))
    for endpoint in (a, b):
        table.begin_scrape(endpoint.slot)
        table.end_scrape(endpoint.slot, 10.0)
    table.distrust(a.slot)
    assert table.all().queue_depth().tolist() == [STALE_PENALTY, 0.0]
    table.expire(12.5, 5.0)
    assert table.all().queue_depth().tolist() == [STALE_PENALTY, 0.0]
    table.begin_scrape(a.slot)
    table.end_scrape(a.slot, 13.0)
    assert table.all().queue_depth().tolist() == [0.0, 0.0]
    table.expire(20.5, 5.0)
    assert table.trust[a.slot] == 0.5
    assert table.trust[b.slot] == 0.0


def test_without_any_fresh_metrics_only_inflight_counts() -> None:
    table = EndpointTable()
    a = table.add(spec(1))
    table.add(spec(2))
    table.book(a)
    assert table.all().queue_depth().tolist() == [STALE_PENALTY + 1.0, STALE_PENALTY]
    assert table.all().kv_usage().tolist() == [0.0, 0.0]


def test_narrowed_candidates_name_the_endpoints_of_their_time() -> None:
    table = EndpointTable()
    table.add(spec(1))
    table.add(spec(2))
    narrowed = table.all().where(np.array([False, True]))
    table.remove("default/pod-2")
    table.add(spec(3))
    assert [e.spec.name for e in narrowed.endpoints] == ["pod-2"]


def test_endpoints_at_which_nobody_listens_are_left_out_while_others_are_there() -> None:
    table = EndpointTable()
    a, b = table.add(spec(1)), table.add(spec(2))
    assert table.all().present() is table.all()
    table.distrust(a.slot, gone=True)
    assert [e.key for e in table.all().present().endpoints] == [b.key]
    table.distrust(b.slot, gone=True)
    assert table.all().present() is table.all(), "when all seem gone, one may be wrong about it"
    table.reached(b.slot, 3.0)
    assert [e.key for e in table.all().present().endpoints] == [b.key]
    table.remove(a.spec.id)
    assert table.absent == 0
    assert not table.gone[table.add(spec(3)).slot]


def test_ejected_endpoints_are_left_out_and_come_back_before_those_that_are_gone() -> None:
    table = EndpointTable()
    a, b, c = (table.add(spec(i)) for i in (1, 2, 3))
    table.eject(a.slot)
    table.eject(a.slot)
    assert table.barred == 1
    assert [e.key for e in table.all().present().endpoints] == [b.key, c.key]
    table.distrust(b.slot, gone=True)
    assert [e.key for e in table.all().present().endpoints] == [c.key]
    table.eject(c.slot)
    assert [e.key for e in table.all().present().endpoints] == [a.key, c.key]
    table.readmit(a.slot)
    table.readmit(a.slot)
    assert [e.key for e in table.all().present().endpoints] == [a.key]
    table.remove(c.spec.id)
    assert table.barred == 0
    assert not table.ejected[table.add(spec(4)).slot]


def test_an_endpoint_warms_up_until_its_time_is_over_or_it_leaves() -> None:
    table = EndpointTable()
    a, b = (table.add(spec(i)) for i in (1, 2))
    table.warm_up(a.slot, 5.0)
    table.warm_up(b.slot, 6.0)
    table.warm_up(a.slot, 7.0)
    assert table.warming == 2
    table.warmed_up(7.0)
    assert (table.warming, table.warm_since[a.slot], table.warm_since[b.slot]) == (1, 7.0, 0.0)
    table.remove(a.spec.id)
    assert table.warming == 0
    table.distrust(b.slot, gone=True)
    table.reached(b.slot, 9.0)
    assert (table.warming, table.warm_since[b.slot]) == (1, 9.0), "a server that came back is cold"
    table.reached(b.slot, 10.0)
    assert table.warm_since[b.slot] == 9.0


class TableMachine(RuleBasedStateMachine):
    """Bookings and releases in any order, over endpoints that come, go and are scraped."""

    def __init__(self) -> None:
        super().__init__()
        self.table = EndpointTable(capacity=2)
        self.rows: dict[str, Endpoint] = {}
        self.bookings: list[tuple[Endpoint, Booking]] = []
        self.before_scrape: dict[str, set[int]] = {}
        self.unseen: dict[str, set[int]] = {}

    @rule(i=st.integers(1, 5))
    def add(self, i: int) -> None:
        if f"default/pod-{i}" not in self.rows:
            row = self.table.add(spec(i))
            self.rows[row.spec.id] = row
            self.unseen[row.spec.id] = set()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.rows)))
        self.table.remove(name)
        del self.rows[name]
        self.before_scrape.pop(name, None)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def book(self, data: st.DataObject) -> None:
        row = self.rows[data.draw(st.sampled_from(sorted(self.rows)))]
        booking = self.table.book(row)
        self.bookings.append((row, booking))
        self.unseen[row.spec.id].add(id(booking))

    @precondition(lambda self: self.bookings)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        row, booking = self.bookings.pop(data.draw(st.integers(0, len(self.bookings) - 1)))
        self.table.release(booking)
        if self.rows.get(row.spec.id) is row:
            self.unseen[row.spec.id].discard(id(booking))

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.rows)))
        self.table.begin_scrape(self.rows[name].slot)
        self.before_scrape[name] = set(self.unseen[name]) | {
            id(b) for row, b in self.bookings if row is self.rows[name]
        }

    @precondition(lambda self: self.before_scrape)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.before_scrape)))
        self.table.end_scrape(self.rows[name].slot, 1.0)
        self.unseen[name] -= self.before_scrape.pop(name)

    @invariant()
    def counts_match_a_naive_ledger(self) -> None:
        for name, row in self.rows.items():
            mine = [b for r, b in self.bookings if r is row]
            assert self.table.inflight[row.slot] == len(mine)
            assert self.table.unseen[row.slot] == len(self.unseen[name])
        dead = [s for s, e in enumerate(self.table.endpoints) if e is None]
        assert not self.table.inflight[dead].any()
        assert self.table.stale == sum(not self.table.fresh[r.slot] for r in self.rows.values())


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=60, stateful_step_count=40)
