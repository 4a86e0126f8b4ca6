"""Moves records from the Valkey stream to the ledger, each one exactly once.

Workers of the task share a consumer group. An entry is read, written to the database, and only after the
commit acknowledged and deleted from the stream; whoever is killed in between leaves it pending, another one
claims it after ``CLAIM_AFTER_MS``, and what is in the ledger already is left out there. What is no record
goes to the dead letters with the reason, so that one bad entry never stops the others.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import redis
from django.db import transaction

from controlplane.usage.ledger import book
from controlplane.usage.models import MAX_PAYLOAD, MAX_REASON, DeadLetter
from dataplane.usage.record import FIELD, MAX_RECORD_BYTES, STREAM, UsageRecord

GROUP: Final = "ledger"
BATCH: Final = 500
MAX_BATCHES: Final = 40
"""Of one turn: others want their turn as well."""
CLAIM_AFTER_MS: Final = 10_000
FORGET_AFTER_MS: Final = 3_600_000
"""Consumers that have not asked for so long, and hold nothing, are no more."""
MAX_DEAD_LETTERS: Final = 10_000

Entry = tuple[bytes, dict[bytes, bytes] | None]


class Moved(NamedTuple):
    """What one turn has done."""

    entries: int
    """Taken from the stream."""
    new: int
    """Records that were not in the ledger."""
    dead: int


class Intake:
    """One consumer of the stream."""

    def __init__(self, client: redis.Redis, name: str | None = None) -> None:
        self._client: Any = client
        """Answers of stream commands have no useful types."""
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._decoder = msgspec.json.Decoder(UsageRecord)

    def move(self, claim_after_ms: int = CLAIM_AFTER_MS) -> Moved:
        """Take what is there, up to the cap of one turn. ``RedisError`` when Valkey is away."""
        self._make_group()
        total = Moved(0, 0, 0)
        for _ in range(MAX_BATCHES):
            entries = self._claim(claim_after_ms) or self._read()
            if not entries:
                break
            done = self._take(entries)
            total = Moved(*(a + b for a, b in zip(total, done, strict=True)))
        self._forget_the_dead()
        return total

    def _make_group(self) -> None:
        try:
            self._client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _claim(self, after_ms: int) -> list[Entry]:
        """Entries of consumers that have not come back for them."""
        answer = self._client.xautoclaim(
            STREAM, GROUP, self._name, min_idle_time=after_ms, start_id="0-0", count=BATCH
        )
        return [entry for entry in answer[1] if entry[0] is not None]

    def _read(self) -> list[Entry]:
        answer = self._client.xreadgroup(GROUP, self._name, {STREAM: ">"}, count=BATCH)
        return list(answer[0][1]) if answer else []

    def _take(self, entries: Sequence[Entry]) -> Moved:
        records: list[UsageRecord] = []
        dead: list[DeadLetter] = []
        for entry, fields in entries:
            payload = (fields or {}).get(FIELD, b"")
            try:
                if len(payload) > MAX_RECORD_BYTES:
                    raise ValueError(f"has more than {MAX_RECORD_BYTES} bytes")
                record = self._decoder.decode(payload)
                if any("\x00" in text for text in msgspec.structs.astuple(record) if isinstance(text, str)):
                    raise ValueError("holds a NUL character")
            except (ValueError, TypeError) as error:
                dead.append(self._dead_letter(entry, payload, str(error)))
            else:
                records.append(record)
        with transaction.atomic():
            new = book(records) if records else 0
            if dead:
                DeadLetter.objects.bulk_create(dead, ignore_conflicts=True)
        ids = [entry for entry, _ in entries]
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
            pipeline.execute()
        return Moved(len(entries), new, len(dead))

    def _dead_letter(self, entry: bytes, payload: bytes, reason: str) -> DeadLetter:
        text = payload[:MAX_PAYLOAD].decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
        return DeadLetter(
            entry=entry.decode(),
            reason=reason[:MAX_REASON].replace("\x00", "\\x00"),
            payload=text[:MAX_PAYLOAD],
            source=self._name,
        )

    def _forget_the_dead(self) -> None:
        for consumer in self._client.xinfo_consumers(STREAM, GROUP):
            if consumer["pending"] == 0 and consumer["idle"] > FORGET_AFTER_MS:
                self._client.xgroup_delconsumer(STREAM, GROUP, consumer["name"])
