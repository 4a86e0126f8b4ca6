"""Records leave the stream when they are in the ledger, and neither kills nor nonsense change the count."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import msgspec
import pytest
import redis

from controlplane.usage import intake, tasks
from controlplane.usage.intake import GROUP, Intake, Moved
from controlplane.usage.models import DeadLetter, HourlyUsage, LedgerEntry
from dataplane.usage.record import FIELD, STREAM
from tests.support.usage import usage_record

pytestmark = pytest.mark.django_db


class KilledError(Exception):
    """The process ends here."""


@pytest.fixture
def client(valkey: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey) as found:
        yield found


def add(client: redis.Redis, *numbers: int) -> None:
    for number in numbers:
        client.xadd(STREAM, {FIELD: msgspec.json.encode(usage_record(number))})


def counted() -> tuple[int, int]:
    return LedgerEntry.objects.count(), sum(row.requests for row in HourlyUsage.objects.all())


def test_entries_move_and_leave_nothing_behind(client: redis.Redis) -> None:
    add(client, *range(700))
    assert Intake(client, "a").move() == Moved(700, 700, 0)
    assert Intake(client, "a").move() == Moved(0, 0, 0)
    assert (counted(), client.xlen(STREAM)) == ((700, 700), 0)
    assert client.xpending(STREAM, GROUP)["pending"] == 0


def test_a_worker_killed_before_the_commit_leaves_its_entries_to_another(client: redis.Redis) -> None:
    add(client, 1, 2)
    with patch.object(intake, "book", side_effect=KilledError), pytest.raises(KilledError):
        Intake(client, "a").move()
    add(client, 3)
    assert Intake(client, "b").move() == Moved(1, 1, 0)
    assert Intake(client, "b").move(claim_after_ms=0) == Moved(2, 2, 0)
    assert (counted(), client.xlen(STREAM)) == ((3, 3), 0)


def test_a_worker_killed_after_the_commit_doubles_nothing(client: redis.Redis) -> None:
    add(client, 1, 2)
    with patch.object(client, "pipeline", side_effect=KilledError), pytest.raises(KilledError):
        Intake(client, "a").move()
    assert (counted(), client.xlen(STREAM)) == ((2, 2), 2)
    assert Intake(client, "b").move(claim_after_ms=0) == Moved(2, 0, 0)
    assert (counted(), client.xlen(STREAM)) == ((2, 2), 0)


def test_what_is_no_record_is_put_aside_with_its_reason(client: redis.Redis) -> None:
    client.xadd(STREAM, {"x": "y"})
    client.xadd(STREAM, {FIELD: b"\xff\x00"})
    client.xadd(STREAM, {FIELD: b" " * 9000})
    client.xadd(STREAM, {FIELD: msgspec.json.encode(usage_record(1, tenant="a\x00b"))})
    client.xadd(STREAM, {FIELD: msgspec.json.encode({**msgspec.to_builtins(usage_record(2)), "status": -1})})
    add(client, 3)
    client.xadd(STREAM, {FIELD: msgspec.json.encode(usage_record(4, tenant="a\\u0000b"))})
    assert Intake(client, "a").move() == Moved(7, 2, 5)
    reasons = list(DeadLetter.objects.order_by("id").values_list("reason", "payload"))
    assert reasons[0][1] == ""
    assert reasons[1][1] == "\\xff\\x00"
    assert reasons[2][0] == "has more than 8192 bytes"
    assert len(reasons[2][1]) == 4000
    assert reasons[3][0] == "holds a NUL character"
    assert "$.status" in reasons[4][0]
    assert (counted(), client.xlen(STREAM)) == ((2, 2), 0)


def test_one_turn_has_an_end(client: redis.Redis) -> None:
    add(client, *range(5))
    with patch.object(intake, "BATCH", 2), patch.object(intake, "MAX_BATCHES", 2):
        assert Intake(client, "a").move().entries == 4
        assert Intake(client, "a").move().entries == 1


def test_consumers_that_are_gone_are_forgotten(client: redis.Redis) -> None:
    add(client, 1)
    Intake(client, "a").move()
    with patch.object(intake, "FORGET_AFTER_MS", -1):
        Intake(client, "b").move()
    assert client.xinfo_consumers(STREAM, GROUP) == []


def test_the_task_moves(client: redis.Redis, settings: object, valkey: str) -> None:
    settings.VALKEY_URL = valkey  # type: ignore[attr-defined]
    add(client, 1)
    client.xadd(STREAM, {FIELD: "no"})
    assert tasks.move() == 2
    assert counted() == (1, 1)
    assert tasks.clean_up_usage()["records"] == 0
