"""Whatever comes, goes and is written: each endpoint has what was left on it, and nothing of anybody else."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable

NUMBERS = [DataKey[float]("Heat", "a"), DataKey[float]("Heat", "b"), DataKey[float]("Noise", "a")]
OTHERS = [DataKey[str]("Place", "a"), DataKey[str]("Owner", "b")]


class Attributes(RuleBasedStateMachine):
    """A table beside a plain dictionary of what its attributes should be."""

    def __init__(self) -> None:
        super().__init__()
        self.table = EndpointTable(capacity=1)
        self.alive: dict[Endpoint, dict[DataKey[Any], Any]] = {}
        self.gone: list[Endpoint] = []
        self.made = 0

    @rule()
    def add(self) -> None:
        self.made += 1
        spec = EndpointSpec(f"e{self.made}", "default", f"10.0.{self.made // 250}.{self.made % 250}", 8000)
        self.alive[self.table.add(spec)] = {}

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        endpoint = data.draw(st.sampled_from(list(self.alive)))
        self.table.remove(endpoint.spec.id)
        del self.alive[endpoint]
        self.gone.append(endpoint)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), key=st.sampled_from(NUMBERS), value=st.none() | st.floats(-9, 9))
    def leave_a_number(self, data: st.DataObject, key: DataKey[float], value: float | None) -> None:
        self._leave(data.draw(st.sampled_from(list(self.alive))), key, value)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), key=st.sampled_from(OTHERS), value=st.none() | st.sampled_from("xyz"))
    def leave_something_else(self, data: st.DataObject, key: DataKey[str], value: str | None) -> None:
        self._leave(data.draw(st.sampled_from(list(self.alive))), key, value)

    def _leave(self, endpoint: Endpoint, key: DataKey[Any], value: Any) -> None:
        self.table.annotate(endpoint, key, value)
        for written in (key, key.by("")):
            self.alive[endpoint][written] = value

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), key=st.sampled_from(NUMBERS))
    def a_departed_endpoint_is_written_to(self, data: st.DataObject, key: DataKey[float]) -> None:
        self.table.annotate(data.draw(st.sampled_from(self.gone)), key, 99.0)

    @rule(kept=st.sets(st.sampled_from([*NUMBERS, *OTHERS])))
    def retain(self, kept: set[DataKey[Any]]) -> None:
        self.table.attributes.retain(kept)
        names = kept | {key.by("") for key in kept}
        for endpoint, values in self.alive.items():
            self.alive[endpoint] = {key: value for key, value in values.items() if key in names}

    @invariant()
    def every_value_is_where_it_belongs(self) -> None:
        for endpoint, values in self.alive.items():
            for key in (*NUMBERS, *OTHERS, *(key.by("") for key in (*NUMBERS, *OTHERS))):
                assert self.table.attributes.get(endpoint.slot, key) == values.get(key)


TestAttributes = Attributes.TestCase
TestAttributes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
