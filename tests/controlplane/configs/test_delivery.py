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
from controlplane.configs.services import ConfigService, PickerConfigService, ProcessorConfigService
from controlplane.configs.subjects import PICKERS
from controlplane.core import changes
from controlplane.xds import resources, workers
from controlplane.xds.models import Worker
from controlplane.xds.nodes import kind_of, worker_audience
from controlplane.xds.subscriptions import Answer
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import Node, Problem, Refusal, Version, digest_of
from tests.support.controlplane import OPERATOR, VIEWER, client, picker_config, processor_config

pytestmark = pytest.mark.django_db


class Case:
    """A kind of configuration, a document of it, and what its workers call themselves."""

    def __init__(self, service: ConfigService, name: str, cluster: str) -> None:
        self.service, self.subject = service, service.subject
        self.kind = service.kind
        self.name = name
        self.cluster = cluster

    def document(self, number: float = 2) -> dict[str, Any]:
        """Another number is another content."""
        if self.subject is PICKERS:
            return picker_config(number)
        return processor_config(number, self.name)

    def create(self) -> None:
        self.service.create(OPERATOR, self.document())

    def publish(self, wish: Wish | None = None) -> None:
        rollouts.publish(OPERATOR, self.name, wish or Wish(), self.kind)


PICKER, PROCESSOR = (
    Case(PickerConfigService(), "standard", "pool"),
    Case(ProcessorConfigService(), "edge", "edge"),
)


@pytest.fixture(params=[PICKER, PROCESSOR], ids=["picker", "processor"])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


class Follower:
    """A worker as the hub sees it."""

    def __init__(self, node: str, case: Case) -> None:
        self.node = node
        self.pool = case.cluster
        self.type_url = case.subject.type_url
        kind = kind_of(self.type_url)
        found = worker_audience(Node(node, self.pool), kind)
        assert found is not None
        self.audience = found
        workers.arrived(Node(node, self.pool, {"component": "worker"}), "workers", kind)
        workers.joined({node})

    def resources(self) -> Any:
        return resources.build({self.audience})[1][self.audience][self.type_url]

    def sent(self) -> dict[str, Any] | None:
        """The set as the worker reads it; None when it is empty."""
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
        workers.answered([(self.node, Answer(self.type_url, Version(1, digest), "", refusal))])

    @property
    def applied(self) -> int | None:
        found = Worker.objects.get(node_id=self.node).applied
        return None if found is None else found.number


def newest() -> Rollout:
    found = Rollout.objects.first()
    assert found is not None
    return found


@pytest.fixture
def pickers(case: Case) -> tuple[Follower, Follower]:
    """Both run revision 1; revision 2 is tried at the first of them."""
    case.create()
    case.publish()
    both = [Follower("w1", case), Follower("w2", case)]
    for picker in both:
        picker.answers()
    case.service.update(OPERATOR, case.name, case.document(5))
    case.publish(Wish(canary=Canary(count=1)))
    first, second = sorted(both, key=lambda picker: picker.revision() or 0, reverse=True)
    return first, second


def test_a_picker_is_sent_what_it_should_run_and_before_that_nothing(case: Case) -> None:
    picker = Follower("w1", case)
    assert picker.sent() is None
    case.create()
    assert picker.sent() is None
    case.publish()
    revision = ConfigDocument.objects.get().revisions.get()
    sent = picker.sent()
    assert sent == {
        "content": json.loads(revision.content),
        "digest": revision.digest,
        "document": case.name,
        "revision": 1,
        "rollout": newest().pk,
    }
    assert (newest().stage, picker.applied) == (Stage.ROLLING, None)
    picker.answers()
    assert (newest().stage, picker.applied, picker.sent()) == (Stage.COMPLETE, 1, sent)
    shown = client().get("/api/v1/workers/w1").json()
    assert shown["applied"] == {"document": case.name, "revision": 1, "digest": revision.digest}
    assert (shown["component"], shown["types"][0]["outcome"]) == ("worker", "ack")


def test_a_canary_comes_first_and_the_others_after_promotion(
    case: Case, pickers: tuple[Follower, Follower]
) -> None:
    first, second = pickers
    assert (first.revision(), second.revision()) == (2, 1)
    first.answers()
    assert (newest().stage, second.revision()) == (Stage.CANARY, 1)
    rollouts.promote(OPERATOR, case.name, kind=case.kind)
    assert second.revision() == 2
    second.answers()
    assert (newest().stage, Follower("w3", case).revision()) == (Stage.COMPLETE, 2)


def test_a_refusal_stops_at_the_canary_and_can_be_tried_again(
    case: Case, pickers: tuple[Follower, Follower]
) -> None:
    first, second = pickers
    refused = first.resources()
    before = changes.current()
    first.answers(Problem("plugins[0].type", "is unknown"))
    assert (newest().stage, newest().reason) == (
        Stage.HALTED,
        f"{first.node} refuses it: plugins[0].type: is unknown",
    )
    assert (changes.current() - before, first.revision(), second.revision(), first.applied) == (1, 1, 1, 1)
    shown = rollouts.detailed(*rollouts.current(VIEWER, case.name, case.kind))
    told = {worker["worker"]: worker["problems"] for worker in shown["workers"]}
    assert told == {first.node: [{"path": "plugins[0].type", "message": "is unknown"}], second.node: []}

    case.publish(Wish(canary=Canary(count=1)))
    assert first.revision() == 2
    assert digest_of(first.resources().values()) != digest_of(refused.values()), "or it was never sent again"
    first.answers(Problem("late", "about the rollout before"), about=refused)
    assert newest().stage == Stage.CANARY
    first.answers()
    assert (newest().stage, first.applied) == (Stage.CANARY, 2)


def test_going_back_brings_a_newer_revision_to_all(case: Case, pickers: tuple[Follower, Follower]) -> None:
    pickers[0].answers()
    rollouts.roll_back(OPERATOR, case.name, kind=case.kind)
    assert [picker.revision() for picker in pickers] == [3, 3]
    for picker in pickers:
        picker.answers()
    assert (newest().stage, [picker.applied for picker in pickers]) == (Stage.COMPLETE, [3, 3])


def test_what_a_picker_runs_from_before_is_recognised(case: Case, pickers: tuple[Follower, Follower]) -> None:
    """Its answer was lost with the control plane; the picker comes back and says what it uses."""
    first, second = pickers
    brought = first.resources()
    rollouts.halt(OPERATOR, case.name, kind=case.kind)
    assert first.revision() == 1
    first.answers(about=brought)
    assert (first.applied, first.revision(), second.revision(), newest().stage) == (2, 2, 1, Stage.HALTED)


def test_nobody_waits_for_pickers_that_have_gone_and_another_one_is_tried(
    case: Case, pickers: tuple[Follower, Follower]
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
    rollouts.promote(OPERATOR, case.name, kind=case.kind)
    assert newest().stage == Stage.COMPLETE


def test_without_its_document_a_picker_is_sent_nothing_and_starts_again_at_one(
    case: Case, pickers: tuple[Follower, Follower]
) -> None:
    known = pickers[0].resources()
    pickers[0].answers()
    case.service.delete(OPERATOR, case.name)
    assert (pickers[0].sent(), pickers[0].applied) == (None, None)
    pickers[0].answers(about=known)
    pickers[0].answers()
    assert pickers[0].applied is None
    case.create()
    case.publish()
    assert pickers[0].revision() == 1


def test_many_pickers_cost_no_more_queries_than_one(case: Case, pickers: tuple[Follower, Follower]) -> None:
    more = [Follower(f"x{number}", case) for number in range(20)]

    def queries(some: list[Follower]) -> int:
        audiences = {picker.audience for picker in some}
        resources.build(audiences)  # notes who is sent what
        with CaptureQueriesContext(connection) as captured:
            resources.build(audiences)
        return len(captured)

    # Payload processors are sent guardrail policies as well, with the models that pools serve.
    expected = 8 if case.kind == "EndpointPickerConfig" else 13
    assert queries([pickers[0]]) == queries([*pickers, *more]) == expected


def test_those_who_have_the_same_name_and_are_another_kind_are_strangers() -> None:
    """A pool and a payload processor may be called the same, and so may documents of both kinds."""
    same = Case(ProcessorConfigService(), "pool", "pool")
    picker_too = Case(PickerConfigService(), "standard", "pool")
    for each in (same, picker_too):
        each.create()
        each.publish()
        Follower(f"w-{each.kind.lower()}", each)
    picker, processor = Follower("p", picker_too), Follower("q", same)
    picker.answers()
    assert (picker.revision(), processor.revision()) == (1, 1)
    sent = picker.sent()
    assert sent is not None
    assert sent["content"]["kind"] == "EndpointPickerConfig"
    shown = rollouts.detailed(*rollouts.current(VIEWER, "pool", same.kind))
    assert [worker["worker"] for worker in shown["workers"]] == ["q", "w-payloadprocessorconfig"]
    assert (picker.applied, processor.applied) == (1, None)
    # What somebody says of a type that is not for its kind counts for nobody.
    answer = Answer(same.subject.type_url, Version(1, digest_of(processor.resources().values())), "", None)
    workers.answered([("p", answer)])
    assert picker.applied == 1
    assert rollouts.current(VIEWER, "pool", same.kind)[1].acks.filter(worker="p").count() == 0
