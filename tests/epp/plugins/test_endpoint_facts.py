"""Facts about endpoints are read once per endpoint and follow every change of the table."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from epp.interfaces.endpoint import Candidates, EndpointSpec, EndpointTable
from epp.plugins.endpoint_facts import EndpointFacts, SlotsByLabel, SpecFilter
from tests.support.labelled import labelled_table, names

SIZES = [{"size": str(n)} for n in range(3)]


def size(spec: EndpointSpec) -> tuple[float, float]:
    return float(spec.labels.get("size", -1)), float(spec.port)


def is_large(spec: EndpointSpec) -> bool:
    return spec.labels.get("size", "") > "0"


def test_there_is_one_column_per_candidate():
    table = labelled_table(SIZES)
    facts = EndpointFacts(size, 2)
    assert facts.of(table.all()).T.tolist() == [[0, 8000], [1, 8000], [2, 8000]]
    assert facts.of(Candidates(table, np.array([2, 0]))).T.tolist() == [[2, 8000], [0, 8000]]
    assert facts.of(Candidates(table, np.array([], dtype=np.intp))).shape == (2, 0)


def test_only_new_and_relabelled_endpoints_are_read_again():
    table = labelled_table(SIZES)
    read: list[str] = []

    def note(spec: EndpointSpec) -> tuple[float]:
        read.append(spec.name)
        return (0.0,)

    facts = EndpointFacts(note)
    facts.of(table.all())
    facts.of(table.all())
    assert read == ["e0", "e1", "e2"]
    table.relabel("default/e1", EndpointSpec("e1", "default", "10.0.0.2", 8000, {"size": "9"}))
    table.add(EndpointSpec("e3", "default", "10.0.0.4", 8000))
    facts.of(table.all())
    assert read == ["e0", "e1", "e2", "e1", "e3"]


def test_another_table_is_read_from_the_start():
    facts = EndpointFacts(size, 2)
    facts.of(labelled_table([{"size": "7"}, {"size": "8"}]).all())
    assert facts.of(labelled_table([{"size": "1"}]).all()).T.tolist() == [[1, 8000]]


def test_the_same_candidates_give_the_same_object_until_the_table_changes():
    table = labelled_table(SIZES)
    large = SpecFilter(is_large)
    first = large.kept(table.all())
    assert names(first) == ["e1", "e2"]
    assert large.kept(table.all()) is first
    assert names(large.kept(Candidates(table, np.array([0, 1])))) == ["e1"]
    table.relabel("default/e0", EndpointSpec("e0", "default", "10.0.0.1", 8000, {"size": "5"}))
    assert names(large.kept(table.all())) == ["e0", "e1", "e2"]


def test_candidates_kept_across_a_change_are_judged_by_the_new_labels():
    table = labelled_table(SIZES)
    large, held = SpecFilter(is_large), table.all()
    assert names(large.kept(held)) == ["e1", "e2"]
    table.relabel("default/e1", EndpointSpec("e1", "default", "10.0.0.2", 8000))
    assert names(large.kept(held)) == ["e2"]


def test_when_all_pass_the_candidates_themselves_are_returned():
    table = labelled_table([{"size": "1"}, {"size": "2"}])
    assert SpecFilter(is_large).kept(table.all()) is table.all()


changes = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "relabel"]), st.integers(0, 5), st.integers(0, 3))
)


@given(changes)
def test_facts_agree_with_the_specs_after_any_changes(steps: list[tuple[str, int, int]]):
    table, facts, large = EndpointTable(capacity=1), EndpointFacts(size, 2), SpecFilter(is_large)
    for kind, number, value in steps:
        spec = EndpointSpec(f"e{number}", "default", f"10.0.0.{number}", 8000, {"size": str(value)})
        present = table.get(spec.id) is not None
        if kind == "add" and not present:
            table.add(spec)
        elif kind == "remove":
            table.remove(spec.id)
        elif kind == "relabel" and present:
            table.relabel(spec.id, spec)
        everyone = table.all()
        assert facts.of(everyone).T.tolist() == [list(size(e.spec)) for e in everyone.endpoints]
        assert names(large.kept(everyone)) == [e.spec.name for e in everyone.endpoints if is_large(e.spec)]


def test_slots_by_label_follow_the_table():
    table = labelled_table([{"tier": "a"}, {"tier": "b"}, {}, {"tier": "a", "off": ""}])
    slots = SlotsByLabel(table, "tier", lambda spec: "off" not in spec.labels)
    assert {value: found.tolist() for value, found in slots.by_value.items()} == {"a": [0], "b": [1]}
    assert names(slots.kept(table.all(), "a")) == ["e0"]
    assert names(slots.kept(table.all(), "c")) == []
    assert slots.by_value is slots.by_value
    table.relabel("default/e2", EndpointSpec("e2", "default", "10.0.0.3", 8000, {"tier": "b"}))
    table.remove("default/e1")
    assert names(slots.kept(table.all(), "b")) == ["e2"]
