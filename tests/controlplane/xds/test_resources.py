"""From rows to what pickers are sent, and the number by which changes are noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from controlplane.core import changes
from controlplane.core.errors import ConflictError
from controlplane.core.kinds import KINDS
from controlplane.core.models import Change
from controlplane.objectives.models import InferenceModelRewrite
from controlplane.xds import resources
from controlplane.xds.nodes import Audience, NodeKind
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import POOL_OBJECTS
from epp.objects.documents import Scope
from epp.objects.received import read_received
from tests.support.controlplane import OPERATOR, REWRITE, objective

pytestmark = pytest.mark.django_db


def make(document: dict[str, Any]) -> None:
    service = KINDS.of(document["kind"])
    assert service is not None
    service.create(OPERATOR, document)


def payload(pool: str) -> bytes:
    audience = Audience(NodeKind.PICKER, pool)
    _, built = resources.build({audience})
    return unwrapped(built[audience][POOL_OBJECTS][pool].value)


def test_a_pool_is_sent_its_objects_as_a_picker_reads_them() -> None:
    make(objective())
    make(REWRITE)
    make(objective("elsewhere", poolRef={"name": "other"}))
    reading, problems = read_received(payload("pool"), Scope("pool"))
    assert problems == []
    assert [(each.name, each.priority) for each in reading.objectives()] == [("interactive", 10)]
    (rewrite,) = reading.rewrites()
    assert rewrite.created_at == InferenceModelRewrite.objects.get().created_at.timestamp()
    assert json.loads(payload("nobody")) == {"documents": []}


def test_equal_objects_are_equal_bytes_whatever_their_versions() -> None:
    make(objective())
    before = payload("pool")
    service = KINDS.of("InferenceObjective")
    assert service is not None
    service.update(OPERATOR, "interactive", objective(priority=7))
    assert payload("pool") != before
    service.update(OPERATOR, "interactive", objective(priority=10))
    assert payload("pool") == before


def test_many_pools_cost_no_more_queries_than_one() -> None:
    def queries(pools: set[str]) -> int:
        with CaptureQueriesContext(connection) as captured:
            resources.build({Audience(NodeKind.PICKER, pool) for pool in pools})
        return len(captured)

    for number in range(6):
        make(objective(f"o{number}", poolRef={"name": f"p{number}"}))
    queries({"p0"})  # makes the counter's row
    assert queries({"p0"}) == queries({f"p{number}" for number in range(6)}) == 4


def test_every_change_is_counted_and_what_is_refused_or_undone_is_not() -> None:
    assert changes.current() == 0
    make(objective())
    assert changes.current() == 1
    with pytest.raises(ConflictError):
        make(objective())
    with transaction.atomic():
        make(objective("other"))
        assert changes.current() == 2
        transaction.set_rollback(True)
    assert changes.current() == 1


def test_rows_are_folded_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "FOLDED_FROM", 3)
    for _ in range(3):
        changes.bump()
    changes.fold()
    assert (changes.current(), Change.objects.count()) == (3, 3)
    changes.bump()
    changes.fold()
    assert (changes.current(), Change.objects.count()) == (4, 0)
    changes.bump()
    assert changes.current() == 5


def test_the_counter_goes_on_from_what_workers_know_and_never_back() -> None:
    changes.raise_to(7)
    changes.raise_to(5)
    assert changes.current() == 7
    changes.bump()
    assert changes.current() == 8
