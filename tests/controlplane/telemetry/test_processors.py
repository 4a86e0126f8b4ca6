"""What payload processors publish: over HTTP, and to the guards of rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from controlplane.configs import rollouts
from controlplane.configs import workers as configured
from controlplane.configs.models import Rollout
from controlplane.configs.rollout import Canary, Guard
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import ProcessorConfigService
from controlplane.core.documents import apply
from controlplane.core.roles import Role
from controlplane.policies.services import GuardrailPolicyService
from controlplane.telemetry import feed, tasks
from controlplane.telemetry.processors import Processors
from controlplane.xds import workers
from controlplane.xds.nodes import NodeKind
from dataplane.config.reload import revision_of
from dataplane.telemetry.summary import FIELD, PROCESSORS, PolicyCounts
from dataplane.xds.messages import Node
from tests.controlplane.policies.test_policy_rollouts import Processor, policy
from tests.support.clock import ManualClock
from tests.support.controlplane import OPERATOR, VIEWER, WORKER, client, processor_config
from tests.support.telemetry import processor_summary

KIND = "GuardrailPolicy"


@pytest.fixture
def bus(valkey: str, settings: Any) -> Iterator[redis.Redis]:
    settings.VALKEY_URL = valkey
    feed.stop()
    with redis.Redis.from_url(valkey) as found:
        yield found
    feed.stop()


def say(bus: redis.Redis, worker: str = "i-1", **fields: Any) -> None:
    bus.xadd(PROCESSORS, {FIELD: msgspec.json.encode(processor_summary(worker, **fields))})


def newest() -> Rollout:
    found = Rollout.objects.first()
    assert found is not None
    return found


def test_replicas_add_up_and_those_that_are_silent_do_not_count() -> None:
    clock = ManualClock(1000.0)
    found = Processors(clock)
    found.add(processor_summary("i-1", 999.5, blocked=4, latency_p95=0.1, inflight=2))
    found.add(processor_summary("i-2", 999.2, ready=False, latency_p95=0.3))
    latest = found.latest("edge")
    assert latest is not None
    assert latest["point"] == {
        "at": 1000,
        "requestsPerS": 10.0,
        "errorsPerS": 1.0,
        "refusedPerS": 0.0,
        "blockedPerS": 2.0,
        "inflight": 2,
        "latencyP50": None,
        "latencyP95": 0.3,
        "loopLag": 0.0,
        "ready": 1,
        "workers": 2,
    }
    clock.advance(5)
    found.add(processor_summary("i-1", 1004.9))
    latest = found.latest("edge")
    assert latest is not None
    assert (latest["point"]["workers"], [each["stale"] for each in latest["workers"]]) == (1, [False, True])
    assert set(found.health()) == {("edge", "i-1")}
    assert [point["at"] for point in found.points("edge", 60)] == [999, 1004]
    assert (found.latest("other"), found.groups()) == (None, ["edge"])


@pytest.mark.django_db
def test_what_processors_say_is_told_over_http(bus: redis.Redis) -> None:
    bus.xadd(PROCESSORS, {FIELD: b"no"})
    counts = PolicyCounts("house", 3, 100, 0, 7)
    say(bus, revision="edge/2@abc", policies_version="9.f", policies_total=1, policies=[counts])
    api = client(Role.VIEWER)
    every = api.get("/api/v1/telemetry/processors").json()
    assert (every["configured"], [each["processor"] for each in every["items"]]) == (True, ["edge"])
    one = api.get("/api/v1/telemetry/processors/edge?seconds=60").json()
    (worker,) = one["workers"]
    assert (worker["worker"], worker["revision"], worker["stale"]) == ("i-1", "edge/2@abc", False)
    assert worker["policies"] == [
        {"name": "house", "revision": 3, "requests": 100, "errors": 0, "blocked": 7}
    ]
    assert [point["requestsPerS"] for point in one["points"]] == [5.0]
    workers.arrived(Node("i-1", "edge"), "processors", NodeKind.PROCESSOR)
    workers.arrived(Node("i-2", "edge"), "processors", NodeKind.PROCESSOR)
    health = {
        "ready": True,
        "requestsPerS": 5.0,
        "errorsPerS": 0.5,
        "blockedPerS": 0.0,
        "latencyP95": None,
        "loopLag": 0.0,
        "revision": "edge/2@abc",
        "policiesVersion": "9.f",
    }
    listed = api.get("/api/v1/workers").json()["items"]
    assert [(each["id"], each["health"]) for each in listed] == [("i-1", health), ("i-2", None)]
    assert api.get("/api/v1/workers/i-1").json()["health"] == health
    assert api.get("/api/v1/telemetry/processors/other").status_code == 404
    assert api.get("/api/v1/telemetry/processors/edge?seconds=x").status_code == 422
    assert api.get("/api/v1/telemetry/pools").json()["items"] == []


@pytest.mark.django_db
def test_a_configuration_that_costs_requests_is_halted(bus: redis.Redis) -> None:
    ProcessorConfigService().create(OPERATOR, processor_config())
    workers.arrived(Node("i-1", "by-model"), "processors", NodeKind.PROCESSOR)
    workers.joined({"i-1"})
    rollouts.publish(
        OPERATOR, "by-model", Wish(canary=Canary(count=1), guard=Guard(0.1, 50)), "PayloadProcessorConfig"
    )
    configured.acknowledge(WORKER, "i-1", "by-model", 1, [], newest().pk, "PayloadProcessorConfig")
    revision = f"by-model/1@{revision_of(newest().revision.content.encode())}"
    say(bus, revision=revision, revision_requests=60, revision_errors=6, revision_blocked=60)
    assert (tasks.guard(), newest().stage) == (1, "canary")
    say(bus, revision="by-model/2@another", revision_requests=60, revision_errors=60)
    assert (tasks.guard(), newest().stage) == (0, "canary")
    say(bus, revision=revision, revision_requests=60, revision_errors=7)
    assert (tasks.guard(), newest().stage) == (1, "halted")
    assert newest().reason.startswith("7 of 60 requests failed (11.7%)")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("guard", "halted"),
    [
        (None, ""),
        (Guard(0.1, 50), ""),
        (Guard(None, 50, 0.2), "30 of 100 requests were blocked (30.0%) at workers that run it; 20.0%"),
        (Guard(0.01, 50, 0.9), "2 of 100 requests failed (2.0%)"),
    ],
)
def test_a_policy_that_blocks_much_is_told_and_halted_only_if_that_is_asked_for(
    bus: redis.Redis, guard: Guard | None, halted: str
) -> None:
    apply(OPERATOR, [policy()])
    first, second = Processor("i-1"), Processor("i-2")
    for each in (first, second):
        each.answers()
    service = GuardrailPolicyService()
    service.update(OPERATOR, "house", policy("lynx"), 1)
    rollouts.publish(OPERATOR, "house", Wish(canary=Canary(count=1), guard=guard), KIND)
    canary, stable = (first, second) if first.has()["house"] == 2 else (second, first)
    canary.answers()
    say(bus, stable.node, policies=[PolicyCounts("house", 1, 900, 900, 900)])
    say(bus, canary.node, policies=[PolicyCounts("other", 2, 9, 9, 9), PolicyCounts("house", 1, 8, 8, 8)])
    assert tasks.guard() == 0
    say(bus, canary.node, policies=[PolicyCounts("house", 2, 100, 2, 30)])
    assert tasks.guard() == 1
    shown = rollouts.detailed(*rollouts.current(VIEWER, "house", KIND))
    assert (shown["stage"], shown["reason"][: len(halted)]) == ("halted" if halted else "canary", halted)
    assert {
        each["worker"]: (each["requests"], each["errors"], each["blocked"]) for each in shown["workers"]
    } == {
        canary.node: (100, 2, 30),
        stable.node: (0, 0, 0),
    }
