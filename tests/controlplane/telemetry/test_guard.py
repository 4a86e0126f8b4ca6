"""Guards of rollouts hear what workers publish of the revision they run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from controlplane.configs import rollouts, workers
from controlplane.configs.models import Rollout
from controlplane.configs.rollout import Canary, Guard, Stage
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import PickerConfigService
from controlplane.telemetry import tasks
from controlplane.telemetry.guard import digest_in
from dataplane.config.given import read_set
from dataplane.config.reload import revision_of
from dataplane.telemetry.summary import FIELD, STREAM
from tests.support.controlplane import OPERATOR, WORKER, picker_config, subscribe
from tests.support.telemetry import summary

pytestmark = pytest.mark.django_db


@pytest.fixture
def bus(valkey: str, settings: Any) -> Iterator[redis.Redis]:
    settings.VALKEY_URL = valkey
    with redis.Redis.from_url(valkey) as found:
        yield found


def say(bus: redis.Redis, **fields: Any) -> None:
    bus.xadd(STREAM, {FIELD: msgspec.json.encode(summary("w1", **fields))})


def newest() -> Rollout:
    found = Rollout.objects.first()
    assert found is not None
    return found


def test_a_rollout_that_costs_requests_is_halted_by_what_its_worker_says(bus: redis.Redis) -> None:
    say(bus)
    assert tasks.guard() == 0
    PickerConfigService().create(OPERATOR, picker_config())
    rollouts.publish(OPERATOR, "standard", Wish(canary=Canary(count=1), guard=Guard(0.1, 50)))
    subscribe("w1")
    found = workers.desired([("w1", "pool")])["w1", "pool"]
    revision = revision_of(found.content.encode())
    say(bus, revision=revision, revision_requests=100, revision_errors=100)
    assert tasks.guard() == 0, "the worker does not say yet that it runs it"
    workers.acknowledge(WORKER, "w1", "standard", 1, [], newest().pk)
    say(bus, revision="another", revision_requests=100, revision_errors=100)
    assert (tasks.guard(), newest().stage) == (0, Stage.CANARY)
    say(bus, revision=revision, revision_requests=60, revision_errors=6)
    assert (tasks.guard(), newest().stage) == (1, Stage.CANARY)
    say(bus, revision=revision, revision_requests=60, revision_errors=7)
    assert (tasks.guard(), newest().stage) == (1, Stage.HALTED)
    assert newest().reason.startswith("7 of 60 requests failed")


@pytest.mark.parametrize(
    ("shown", "digest"),
    [
        ("9f86d081884c", "9f86d081884c"),
        ("standard/3@9f86d081884c", "9f86d081884c"),
        ("team@eu/3@9f86d081884c", "9f86d081884c"),
        ("standard/3@", ""),
        ("", ""),
    ],
)
def test_a_configuration_is_told_by_its_digest_however_it_is_called(shown: str, digest: str) -> None:
    assert digest_in(shown) == digest


def test_a_worker_calls_what_it_was_sent_as_the_guard_reads_it() -> None:
    content = b'{"plugins": []}'
    said = b'{"content": %s, "digest": "%s", "document": "standard", "revision": 3}'
    given = read_set(said % (content, hashlib.sha256(content).hexdigest().encode()))
    assert given.revision.startswith("standard/3@")
    assert digest_in(given.revision) == revision_of(content)
