"""Guardrail policies rolled out: which set each processor is sent, and what its answers mean for each."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.configs import rollouts
from controlplane.configs import workers as configured
from controlplane.configs.models import ConfigRevision, Rollout, Running
from controlplane.core.documents import apply, export
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.core.kinds import KINDS
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.policies.models import GuardrailPolicy, PolicyLink, PolicySet
from controlplane.xds import workers
from controlplane.xds.nodes import Audience, NodeKind
from controlplane.xds.resources import build
from controlplane.xds.subscriptions import Answer
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import GUARDRAILS, Node, Problem, Refusal, Version, digest_of
from tests.support.controlplane import (
    OPERATOR,
    POOL,
    REWRITE,
    TENANT,
    VIEWER,
    WORKER,
    client,
    processor_config,
)

pytestmark = pytest.mark.django_db

KIND = "GuardrailPolicy"
ALL = "/api/v1/guardrailpolicies"


def policy(word: str = "zebra", name: str = "house", release: str = "", **spec: Any) -> dict[str, Any]:
    rule = {"name": "words", "type": "keywords", "parameters": {"words": [word]}}
    metadata: dict[str, Any] = {"name": name}
    if release:
        metadata["annotations"] = {"pointsman.dev/rollout": release}
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": KIND,
        "metadata": metadata,
        "spec": {"rules": [rule], **spec},
    }


def configuration(name: str) -> dict[str, Any]:
    """Of a payload processor that enforces policies."""
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "PayloadProcessorConfig",
        "metadata": {"name": name},
        "plugins": [{"type": "guardrails"}],
        "profiles": [{"name": "default", "plugins": {"request": [{"pluginRef": "guardrails"}]}}],
    }


class Processor:
    """A payload processor's stream, as the control plane sees it."""

    def __init__(self, node: str, name: str = "edge") -> None:
        self.node, self.name = node, name
        workers.arrived(
            Node(node, name, {"component": "ipp", "version": "1.2.3"}), "processors", NodeKind.PROCESSOR
        )
        workers.joined({node})

    def sent(self) -> dict[str, Any]:
        audience = Audience(NodeKind.PROCESSOR_WORKER, f"{self.name}/{self.node}")
        self.resources = build({audience})[1][audience][GUARDRAILS]
        found: dict[str, Any] = json.loads(unwrapped(self.resources[self.name].value))
        return found

    def has(self) -> dict[str, int]:
        """Policy -> number of the revision it is sent."""
        return {each["name"]: each["revision"] for each in self.sent()["policies"]}

    def answers(self, *problems: tuple[str, str]) -> None:
        self.sent()
        refusal = Refusal("no", tuple(Problem(*each) for each in problems)) if problems else None
        version = Version(1, digest_of(self.resources.values()))
        workers.answered([(self.node, Answer(GUARDRAILS, version, "", refusal))])


@pytest.fixture
def two() -> tuple[Processor, Processor]:
    """Two processors that have the first revision of a policy in force."""
    apply(OPERATOR, [policy()])
    found = Processor("i-1"), Processor("i-2", "other")
    for each in found:
        each.answers()
    return found


def newest(name: str = "house") -> Rollout:
    return rollouts.current(VIEWER, name, KIND)[1]


def outcomes(name: str = "house") -> dict[str, tuple[str, int | None]]:
    shown = rollouts.detailed(*rollouts.current(VIEWER, name, KIND))
    return {each["worker"]: (each["outcome"], each["applied"]) for each in shown["workers"]}


def canary_of(two: tuple[Processor, Processor]) -> tuple[Processor, Processor]:
    """The processor that got the second revision, and the one that did not."""
    first, second = two
    return (first, second) if first.has()["house"] == 2 else (second, first)


def test_applying_brings_a_policy_to_everybody_at_once(two: tuple[Processor, Processor]) -> None:
    first, second = two
    assert (first.has(), second.has(), newest().stage) == ({"house": 1}, {"house": 1}, "complete")
    apply(OPERATOR, [policy("lynx")])
    assert (newest().stage, newest().revision.number) == ("rolling", 2)
    assert first.has() == second.has() == {"house": 2}
    (sent,) = first.sent()["policies"]
    assert sent["spec"]["rules"][0]["parameters"] == {"words": ["lynx"]}
    first.answers()
    assert (newest().stage, outcomes()) == ("rolling", {"i-1": ("applied", 2), "i-2": ("sent", 1)})
    second.answers()
    assert (newest().stage, outcomes()) == ("complete", {"i-1": ("applied", 2), "i-2": ("applied", 2)})


def test_a_policy_for_everybody_waits_for_nobody_who_has_not_answered_to_the_one_before(
    two: tuple[Processor, Processor],
) -> None:
    apply(OPERATOR, [policy("lynx")])
    apply(OPERATOR, [policy("heron")])
    assert [(each.revision.number, each.stage, each.reason) for each in Rollout.objects.all()] == [
        (3, "rolling", ""),
        (2, "halted", "revision 3 takes its place"),
        (1, "complete", ""),
    ]
    assert [each.has() for each in two] == [{"house": 3}] * 2
    for each in two:
        each.answers()
    assert newest().stage == "complete"


def test_a_canary_gets_its_set_and_the_others_the_stable_one(two: tuple[Processor, Processor]) -> None:
    apply(OPERATOR, [policy("lynx", release="1"), policy(name="second")])
    canary, stable = canary_of(two)
    assert (canary.has(), stable.has()) == ({"house": 2, "second": 1}, {"house": 1, "second": 1})
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, [policy("heron")])
    assert [detail.message for detail in caught.value.details] == [
        "revision 2 is being rolled out (canary); promote it, halt it or roll it back first"
    ]
    with pytest.raises(ConflictError, match="no worker of the canary runs the revision yet"):
        rollouts.promote(OPERATOR, "house", kind=KIND)
    canary.answers()
    assert outcomes() == {canary.node: ("applied", 2), stable.node: ("waiting", 1)}
    rollouts.promote(OPERATOR, "house", kind=KIND)
    assert stable.has() == {"house": 2, "second": 1}
    stable.answers()
    assert (newest().stage, newest("second").stage) == ("complete", "complete")


def test_a_refusal_stops_the_rollouts_it_names_and_no_others(two: tuple[Processor, Processor]) -> None:
    apply(OPERATOR, [policy("lynx"), policy(name="house.old"), policy(name="second")])
    first = two[0]
    first.answers(("house.spec.rules[0].type", "is unknown here"))
    assert newest().stage == "halted"
    assert newest().reason == "i-1 refuses it: house.spec.rules[0].type: is unknown here"
    assert (newest("house.old").stage, newest("second").stage) == ("rolling", "rolling")
    assert outcomes()["i-1"] == ("rejected", 1)
    assert outcomes("second") == {"i-1": ("sent", None), "i-2": ("waiting", None)}
    # The set without it is another one, and is taken.
    assert [each.has() for each in two] == [{"house": 1, "house.old": 1, "second": 1}] * 2
    for each in two:
        each.answers()
    assert (newest("house.old").stage, newest("second").stage) == ("complete", "complete")
    back = rollouts.roll_back(OPERATOR, "house", kind=KIND)
    assert (back.revision.number, back.stage, first.has()["house"]) == (3, "rolling", 3)


def test_a_refusal_that_names_no_policy_counts_for_all_that_are_new(two: tuple[Processor, Processor]) -> None:
    apply(OPERATOR, [policy("lynx"), policy(name="second")])
    two[0].answers(("", "the worker ended while it took this"))
    assert (newest().stage, newest("second").stage) == ("halted", "halted")
    assert [each.has() for each in two] == [{"house": 1}] * 2
    rollouts.publish(OPERATOR, "second", rollouts.Wish(), KIND)
    for each in two:
        assert each.has() == {"house": 1, "second": 1}
        each.answers()
    assert newest("second").stage == "complete"


def test_a_canary_that_runs_a_halted_revision_keeps_it_until_it_is_rolled_back(
    two: tuple[Processor, Processor],
) -> None:
    apply(OPERATOR, [policy("lynx", release="1")])
    canary, stable = canary_of(two)
    canary.answers()
    rollouts.halt(OPERATOR, "house", kind=KIND)
    assert (canary.has(), stable.has()) == ({"house": 2}, {"house": 1})
    rollouts.roll_back(OPERATOR, "house", kind=KIND)
    assert (canary.has(), stable.has()) == ({"house": 3}, {"house": 3})
    assert canary.sent()["policies"][0]["spec"]["rules"][0]["parameters"] == {"words": ["zebra"]}
    assert GuardrailPolicy.objects.get().spec == policy()["spec"]


def test_a_draft_is_in_force_nowhere_and_going_back_names_again_what_was_named(
    two: tuple[Processor, Processor],
) -> None:
    apply(OPERATOR, [policy(tenants=["research"])])
    for each in two:
        each.answers()
    apply(OPERATOR, [policy("lynx", release="manual")])
    assert two[0].has() == {"house": 2}
    assert not PolicyLink.objects.exists()
    api = client(Role.OPERATOR)
    assert api.post(f"{ALL}/house/publish").json()["stage"] == "rolling"
    assert two[0].has() == {"house": 3}
    assert api.post(f"{ALL}/house/rollback", {"revision": 2}, format="json").status_code == 201
    assert [link.tenant for link in PolicyLink.objects.all()] == ["research"]


def test_a_processor_that_comes_back_with_what_it_had_is_believed(two: tuple[Processor, Processor]) -> None:
    two[0].sent()
    Running.objects.all().delete()
    Rollout.objects.get().acks.all().delete()
    two[0].answers()
    assert outcomes() == {"i-1": ("applied", 1), "i-2": ("waiting", None)}
    # A set that nobody knows any more says nothing.
    PolicySet.objects.all().delete()
    Running.objects.all().delete()
    workers.answered([("i-1", Answer(GUARDRAILS, Version(1, "0" * 32), "", None))])
    assert not Running.objects.exists()
    # It is known again as soon as it is made again.
    two[0].answers()
    assert Running.objects.get().worker.node_id == "i-1"


def test_a_deleted_policy_is_gone_everywhere_and_an_answer_for_it_says_nothing(
    two: tuple[Processor, Processor],
) -> None:
    apply(OPERATOR, [policy("lynx", name="second")])
    two[0].sent()
    version = Version(1, digest_of(two[0].resources.values()))
    service = KINDS.of(KIND)
    assert service is not None
    service.delete(OPERATOR, "second")
    workers.answered([("i-1", Answer(GUARDRAILS, version, "", None))])
    assert (two[0].has(), outcomes()) == ({"house": 1}, {"i-1": ("applied", 1), "i-2": ("applied", 1)})
    service.delete(OPERATOR, "house")
    assert two[0].sent()["policies"] == []
    two[0].answers()
    assert not ConfigRevision.objects.exists()


def test_a_processor_that_has_gone_is_waited_for_no_longer(two: tuple[Processor, Processor]) -> None:
    apply(OPERATOR, [policy("lynx"), policy(name="second")])
    two[0].answers()
    assert newest().stage == "rolling"
    configured.gone(["i-2"])
    assert (newest().stage, newest("second").stage) == ("complete", "complete")


def test_many_processors_and_policies_cost_no_more_queries_than_few(two: tuple[Processor, Processor]) -> None:
    def queries(some: list[Processor]) -> int:
        audiences = {Audience(NodeKind.PROCESSOR_WORKER, f"{each.name}/{each.node}") for each in some}
        build(audiences)
        with CaptureQueriesContext(connection) as captured:
            build(audiences)
        assert {query["sql"].split()[0] for query in captured} == {"SELECT"}
        return len(captured)

    few = queries([two[0]])
    apply(OPERATOR, [policy(name=f"p-{number}") for number in range(10)])
    more = [Processor(f"x{number}") for number in range(5)]
    for each in (*two, *more):
        each.answers()
    assert queries([*two, *more]) == few


def test_processors_are_told_which_models_serve_which_in_a_pool() -> None:
    rules = [
        {
            "matches": [{"model": {"type": "Exact", "value": name}} for name in ("chat", "fast")],
            "targets": [{"modelRewrite": "llama", "weight": 3}, {"modelRewrite": "next", "weight": 1}],
        },
        {"targets": [{"modelRewrite": "llama"}]},
    ]
    apply(OPERATOR, [POOL, {**REWRITE, "spec": {**REWRITE["spec"], "rules": rules}}])
    [pool] = Processor("i-9").sent()["pools"]
    both = ["llama", "next"]
    assert pool["rewrites"] == {"chat": both, "fast": both, "": ["llama"]}


def test_from_a_draft_to_a_plan_over_http() -> None:
    api = client(Role.OPERATOR)
    apply(OPERATOR, [TENANT, POOL])
    first = policy(tenants=["research", "team-*"], pools=["pool"])
    assert api.post(ALL, first, format="json").status_code == 201
    assert api.get(f"{ALL}/house/rollout").status_code == 404
    verdict = api.post(f"{ALL}/house/validate", first, format="json").json()
    assert (verdict["revision"], verdict["warnings"]) == (1, [])
    refused = api.post(
        f"{ALL}/house/validate", policy(rules=[{"name": "r", "type": "keywords"}]), format="json"
    )
    assert (refused.status_code, refused.json()["details"][0]["path"]) == (
        422,
        "spec.rules[0].parameters.words",
    )
    assert api.post(f"{ALL}/house/publish").json()["stage"] == "complete"
    Processor("i-1").answers()
    changed = policy("lynx", tenants=["research"], models=["llama-*"])
    assert api.put(f"{ALL}/house", changed, format="json", HTTP_IF_MATCH='"1"').status_code == 200
    plan = api.get(f"{ALL}/house/plan?canary=1").json()
    assert [each["path"] for each in plan["changes"]] == [
        "spec.models",
        "spec.pools",
        "spec.rules[words].parameters.words[0]",
        "spec.tenants[1]",
    ]
    # Traffic that the policy was for so far is affected, too.
    assert plan["affects"] == {
        "tenants": {"patterns": ["research", "team-*"], "known": ["research"], "more": 0},
        "models": {"patterns": ["*"], "known": [], "more": 0},
        "pools": {"patterns": ["*"], "known": ["pool"], "more": 0},
    }
    assert plan["workers"] == [{"worker": "i-1", "pool": "edge", "applied": 1, "first": True}]
    shown = api.get(f"{ALL}/house/revisions/2").json()
    assert shown["content"]["spec"] == changed["spec"]
    assert {each.action for each in AuditEntry.objects.filter(kind=KIND)} == {"create", "update", "publish"}


def test_annotations_come_back_with_the_policy() -> None:
    document = policy(release="10%")
    document["metadata"]["annotations"]["pointsman.dev/comment"] = "as agreed"
    apply(OPERATOR, [document])
    assert export(VIEWER) == [document]
    assert newest().comment == "as agreed"
    changed = copy.deepcopy(document)
    changed["metadata"]["annotations"]["pointsman.dev/rollout"] = "half"
    refused = client(Role.OPERATOR).post(f"{ALL}/house/validate", changed, format="json")
    assert refused.json()["details"][0]["path"] == "metadata.annotations[pointsman.dev/rollout]"


def test_a_plan_warns_of_processors_that_enforce_nothing(two: tuple[Processor, Processor]) -> None:
    apply(OPERATOR, [processor_config(name="edge"), configuration("other")])
    for node, name in (("i-1", "edge"), ("i-2", "other")):
        document, rollout = rollouts.current(VIEWER, name, "PayloadProcessorConfig")
        configured.acknowledge(WORKER, node, document.name, 1, [], rollout.pk, document.kind)
    plan = client().get(f"{ALL}/house/plan").json()
    (warning,) = plan["warnings"]
    assert warning == (
        "the payload processor edge enforces no policy: revision 1 of its configuration has no plugin of "
        "type guardrails"
    )


def test_workers_are_shown_with_the_policies_they_enforce(two: tuple[Processor, Processor]) -> None:
    apply(OPERATOR, [policy(name="second")])
    two[0].answers()
    api = client(Role.VIEWER)
    listed = api.get("/api/v1/workers?kind=processor").json()["items"]
    assert [(each["id"], each["version"], each["policies"]) for each in listed] == [
        ("i-1", "1.2.3", 2),
        ("i-2", "1.2.3", 1),
    ]
    shown = api.get("/api/v1/workers/i-1").json()
    assert [(each["document"], each["revision"]) for each in shown["running"]] == [
        ("house", 1),
        ("second", 1),
    ]
