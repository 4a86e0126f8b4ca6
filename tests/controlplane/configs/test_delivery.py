"""Configurations on the discovery stream: who is sent what, and what answers bring about."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.configs import rollouts
from controlplane.configs.models import ConfigDocument, Rollout
from controlplane.configs.rollout import Canary, Stage
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import PickerConfigService
from controlplane.core import changes
from controlplane.xds import resources, workers
from controlplane.xds.models import Worker
from controlplane.xds.nodes import worker_audience
from controlplane.xds.subscriptions import Answer
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import PICKER_CONFIG, Node, Problem, Refusal, Version, digest_of
from tests.support.controlplane import OPERATOR, VIEWER, client, picker_config

pytestmark = pytest.mark.django_db

SERVICE = PickerConfigService()


class Picker:
    """A worker as the hub sees it."""

    def __init__(self, node: str, pool: str = "pool") -> None:
        self.node = node
        self.pool = pool
        self.audience = worker_audience(Node(node, pool))
        workers.arrived(Node(node, pool, {"component": "epp"}), "pickers")
        workers.joined({node})

    def resources(self) -> Any:
        return resources.build({self.audience})[1][self.audience][PICKER_CONFIG]

    def sent(self) -> dict[str, Any] | None:
        """The set as the picker reads it; None when it is empty."""
        found = self.resources()
        if not found:
            return None
        assert list(found) == [self.pool]
        return dict(json.loads(unwrapped(found[self.pool].value)))

    def revision(self) -> int | None:
        sent = self.sent()
        return None if sent is None else int(sent["revision"])

    def answers(self, *problems: Problem, about: Any = None) -> None:
        """About what it is sent now, or was sent before."""
        digest = digest_of((self.resources() if about is None else about).values())
        refusal = Refusal("no", problems) if problems else None
        workers.answered([(self.node, Answer(PICKER_CONFIG, Version(1, digest), "", refusal))])

    @property
    def applied(self) -> int | None:
        found = Worker.objects.get(node_id=self.node).applied
        return None if found is None else found.number


def newest() -> Rollout:
    found = Rollout.objects.first()
    assert found is not None
    return found


@pytest.fixture
def pickers() -> tuple[Picker, Picker]:
    """Both run revision 1; revision 2 is tried at the first of them."""
    SERVICE.create(OPERATOR, picker_config())
    rollouts.publish(OPERATOR, "standard", Wish())
    both = [Picker("w1"), Picker("w2")]
    for picker in both:
        picker.answers()
    SERVICE.update(OPERATOR, "standard", picker_config(5))
    rollouts.publish(OPERATOR, "standard", Wish(canary=Canary(count=1)))
    first, second = sorted(both, key=lambda picker: picker.revision() or 0, reverse=True)
    return first, second


def test_a_picker_is_sent_what_it_should_run_and_before_that_nothing() -> None:
    picker = Picker("w1")
    assert picker.sent() is None
    SERVICE.create(OPERATOR, picker_config())
    assert picker.sent() is None
    rollouts.publish(OPERATOR, "standard", Wish())
    revision = ConfigDocument.objects.get().revisions.get()
    sent = picker.sent()
    assert sent == {
        "content": json.loads(revision.content),
        "digest": revision.digest,
        "document": "standard",
        "revision": 1,
        "rollout": newest().pk,
    }
    assert (newest().stage, picker.applied) == (Stage.ROLLING, None)
    picker.answers()
    assert (newest().stage, picker.applied, picker.sent()) == (Stage.COMPLETE, 1, sent)
    shown = client().get("/api/v1/workers/w1").json()
    assert shown["applied"] == {"document": "standard", "revision": 1, "digest": revision.digest}
    assert (shown["component"], shown["types"][0]["outcome"]) == ("epp", "ack")


def test_a_canary_comes_first_and_the_others_after_promotion(pickers: tuple[Picker, Picker]) -> None:
    first, second = pickers
    assert (first.revision(), second.revision()) == (2, 1)
    first.answers()
    assert (newest().stage, second.revision()) == (Stage.CANARY, 1)
    rollouts.promote(OPERATOR, "standard")
    assert second.revision() == 2
    second.answers()
    assert (newest().stage, Picker("w3").revision()) == (Stage.COMPLETE, 2)


def test_a_refusal_stops_at_the_canary_and_can_be_tried_again(pickers: tuple[Picker, Picker]) -> None:
    first, second = pickers
    refused = first.resources()
    before = changes.current()
    first.answers(Problem("plugins[0].type", "is unknown"))
    assert (newest().stage, newest().reason) == (
        Stage.HALTED,
        f"{first.node} refuses it: plugins[0].type: is unknown",
    )
    assert (changes.current() - before, first.revision(), second.revision(), first.applied) == (1, 1, 1, 1)
    shown = rollouts.detailed(*rollouts.current(VIEWER, "standard"))
    told = {worker["worker"]: worker["problems"] for worker in shown["workers"]}
    assert told == {first.node: [{"path": "plugins[0].type", "message": "is unknown"}], second.node: []}

    rollouts.publish(OPERATOR, "standard", Wish(canary=Canary(count=1)))
    assert first.revision() == 2
    assert digest_of(first.resources().values()) != digest_of(refused.values()), "or it was never sent again"
    first.answers(Problem("late", "about the rollout before"), about=refused)
    assert newest().stage == Stage.CANARY
    first.answers()
    assert (newest().stage, first.applied) == (Stage.CANARY, 2)


def test_going_back_brings_a_newer_revision_to_all(pickers: tuple[Picker, Picker]) -> None:
    pickers[0].answers()
    rollouts.roll_back(OPERATOR, "standard")
    assert [picker.revision() for picker in pickers] == [3, 3]
    for picker in pickers:
        picker.answers()
    assert (newest().stage, [picker.applied for picker in pickers]) == (Stage.COMPLETE, [3, 3])


def test_what_a_picker_runs_from_before_is_recognised(pickers: tuple[Picker, Picker]) -> None:
    """Its answer was lost with the control plane; the picker comes back and says what it uses."""
    first, second = pickers
    brought = first.resources()
    rollouts.halt(OPERATOR, "standard")
    assert first.revision() == 1
    first.answers(about=brought)
    assert (first.applied, first.revision(), second.revision(), newest().stage) == (2, 2, 1, Stage.HALTED)


def test_nobody_waits_for_pickers_that_have_gone_and_another_one_is_tried(
    pickers: tuple[Picker, Picker],
) -> None:
    first, second = pickers
    workers.left({first.node})
    workers.sweep()
    assert second.revision() == 1, "it may be back at once"
    Worker.objects.filter(node_id=first.node).update(seen_at=timezone.now() - workers.BACK_WITHIN)
    before = changes.current()
    workers.sweep()
    assert (changes.current() > before, second.revision()) == (True, 2)
    second.answers()
    rollouts.promote(OPERATOR, "standard")
    assert newest().stage == Stage.COMPLETE


def test_without_its_document_a_picker_is_sent_nothing_and_starts_again_at_one(
    pickers: tuple[Picker, Picker],
) -> None:
    known = pickers[0].resources()
    pickers[0].answers()
    SERVICE.delete(OPERATOR, "standard")
    assert (pickers[0].sent(), pickers[0].applied) == (None, None)
    pickers[0].answers(about=known)
    pickers[0].answers()
    assert pickers[0].applied is None
    SERVICE.create(OPERATOR, picker_config())
    rollouts.publish(OPERATOR, "standard", Wish())
    assert pickers[0].revision() == 1


def test_many_pickers_cost_no_more_queries_than_one(pickers: tuple[Picker, Picker]) -> None:
    more = [Picker(f"x{number}") for number in range(20)]

    def queries(some: list[Picker]) -> int:
        audiences = {picker.audience for picker in some}
        resources.build(audiences)  # notes who is sent what
        with CaptureQueriesContext(connection) as captured:
            resources.build(audiences)
        return len(captured)

    assert queries([pickers[0]]) == queries([*pickers, *more]) == 8
