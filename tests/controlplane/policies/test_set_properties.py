"""Whatever is ordered and answered, in whatever order: what each processor is sent makes sense."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.configs import rollouts
from controlplane.configs import workers as configured
from controlplane.configs.content import parsed
from controlplane.configs.models import ConfigRevision, Running
from controlplane.configs.rollout import SPREADING, Stage
from controlplane.core.documents import apply
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.policies.models import GuardrailPolicy
from controlplane.xds import workers
from tests.controlplane.policies.test_policy_rollouts import KIND, Processor, policy
from tests.support.controlplane import OPERATOR

POLICIES = ("a", "a.b", "c")
NODES = ("i-1", "i-2", "i-3")

orders = st.one_of(
    st.tuples(st.just("apply"), st.sampled_from(POLICIES), st.sampled_from(("", "1", "50%", "manual"))),
    st.tuples(
        st.sampled_from(("publish", "promote", "halt", "back")), st.sampled_from(POLICIES), st.just("")
    ),
    st.tuples(st.just("takes"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("refuses"), st.sampled_from(NODES), st.sampled_from(("", *POLICIES))),
    st.tuples(st.sampled_from(("goes", "comes")), st.sampled_from(NODES), st.just("")),
)


class Plant:
    """Three processors and some policies."""

    def __init__(self) -> None:
        self.processors = {node: Processor(node) for node in NODES}
        self.words = 0

    def act(self, what: str, who: str, how: str) -> None:
        if what == "apply":
            self.words += 1
            apply(OPERATOR, [policy(f"word{self.words}", name=who, release=how)])
        elif what == "publish":
            rollouts.publish(OPERATOR, who, rollouts.Wish(), KIND)
        elif what == "promote":
            rollouts.promote(OPERATOR, who, kind=KIND)
        elif what == "halt":
            rollouts.halt(OPERATOR, who, kind=KIND)
        elif what == "back":
            rollouts.roll_back(OPERATOR, who, kind=KIND)
        elif what == "takes":
            self.processors[who].answers()
        elif what == "refuses":
            self.processors[who].answers((f"{how}.spec.rules[0]" if how else "", "no"))
        elif what == "goes":
            configured.gone([who])
        else:
            workers.joined({who})

    def check(self) -> None:
        rows = {row.name: row for row in GuardrailPolicy.objects.select_related("active")}
        running = {
            (node, name): number
            for node, name, number in Running.objects.values_list(
                "worker__node_id", "document__name", "revision__number"
            )
        }
        for node, processor in self.processors.items():
            sent: dict[str, Any] = {each["name"]: each for each in processor.sent()["policies"]}
            assert list(sent) == sorted(sent)
            for name, row in rows.items():
                newest = rollouts.newest_of(row)
                active = None if row.active is None else row.active.number
                held = running.get((node, name))
                number = sent[name]["revision"] if name in sent else None
                may_be = {active, held} - {None}
                if newest is not None and newest.stage in SPREADING:
                    may_be.add(newest.revision.number)
                assert number in may_be or (number is None and not {active, held} - {None})
                if newest is not None and newest.stage == Stage.ROLLING:
                    assert number == newest.revision.number
                if number is not None:
                    assert number >= max(each for each in (active, held, 0) if each is not None)
                    revision = ConfigRevision.objects.get(document=row, number=number)
                    assert sent[name]["spec"] == parsed(revision.content)["spec"]


@pytest.mark.django_db
@settings(max_examples=25, deadline=None)
@given(st.lists(orders, max_size=20))
def test_each_processor_is_sent_what_is_active_or_on_its_way_to_it(steps: list[tuple[str, str, str]]) -> None:
    with transaction.atomic():
        plant = Plant()
        for step in steps:
            with suppress(ConflictError, InvalidError, rollouts.MissingError):
                plant.act(*step)
            plant.check()
        # Once everybody who is there takes what it is sent, everything on its way to all arrives.
        for row in GuardrailPolicy.objects.all():
            with suppress(ConflictError):
                rollouts.halt(OPERATOR, row.name, kind=KIND)
            with suppress(ConflictError, InvalidError):
                rollouts.roll_back(OPERATOR, row.name, 1, kind=KIND)
        workers.joined(set(NODES))
        for processor in plant.processors.values():
            processor.answers()
        stages = {
            row.name: newest.stage
            for row in GuardrailPolicy.objects.all()
            if (newest := rollouts.newest_of(row)) is not None
        }
        assert Stage.ROLLING not in stages.values()
        plant.check()
        transaction.set_rollback(True)
