"""From the picker's journal to the ledger, with a kill at any step: every record is counted once."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from controlplane.usage import intake
from controlplane.usage.intake import Intake
from controlplane.usage.ledger import book
from controlplane.usage.models import DailyUsage, HourlyUsage, LedgerEntry
from dataplane.usage.journal import Journal
from dataplane.usage.record import FIELD, STREAM
from dataplane.usage.shipper import DeliveryError, Shipper
from tests.support.usage import usage_record


class KilledError(Exception):
    """The process ends here."""


class Stream:
    """Adds records to the real stream; may break off in the middle, or after all of it."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.breaks_after: int | None = None

    async def add(self, records: Sequence[bytes]) -> None:
        for number, record in enumerate(records):
            if number == self.breaks_after:
                raise DeliveryError("broken off")
            self.client.xadd(STREAM, {FIELD: record})
        if self.breaks_after is not None:
            raise DeliveryError("the answer was lost")

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.django_db
def test_every_record_is_counted_once(valkey: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = redis.Redis.from_url(valkey)

    class Delivery(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            client.flushall()
            for model in (LedgerEntry, HourlyUsage, DailyUsage):
                model.objects.all().delete()
            self.folder = Path(tempfile.mkdtemp())
            self.appended = 0
            self.consumers = 0
            self.stream = Stream(client)
            self.start()

        def start(self) -> None:
            self.journal = Journal(self.folder, max_bytes=1 << 20, segment_bytes=2048)
            self.shipper = Shipper(self.journal, self.stream)

        @rule(count=st.integers(1, 12))
        def requests_end(self, count: int) -> None:
            for _ in range(count):
                self.journal.append(usage_record(self.appended))
                self.appended += 1

        @rule()
        def kill_the_picker(self) -> None:
            self.journal._lock.close()
            self.start()

        @rule(breaks_after=st.none() | st.integers(0, 8))
        def ship(self, breaks_after: int | None) -> None:
            self.stream.breaks_after = breaks_after
            asyncio.run(self.shipper.ship())

        @rule()
        def kill_the_picker_before_it_knows_that_records_arrived(self) -> None:
            found = self.journal.first(5)
            if found is not None:
                self.stream.breaks_after = None
                asyncio.run(self.stream.add(found[1]))
            self.kill_the_picker()

        @rule()
        def move(self) -> None:
            self.consumers += 1
            Intake(client, f"c{self.consumers}").move(claim_after_ms=0)

        @rule(after_the_commit=st.booleans())
        def kill_the_worker(self, after_the_commit: bool) -> None:
            self.consumers += 1

            def killed(*arguments: object) -> int:
                book(*arguments)  # type: ignore[arg-type]
                raise KilledError

            with monkeypatch.context() as patch:
                if after_the_commit:
                    patch.setattr(client, "pipeline", killed_at_once)
                else:
                    patch.setattr(intake, "book", killed)
                with contextlib.suppress(KilledError):
                    Intake(client, f"c{self.consumers}").move(claim_after_ms=0)

        @invariant()
        def nothing_is_doubled(self) -> None:
            entries = LedgerEntry.objects.count()
            assert entries <= self.appended
            for model in (HourlyUsage, DailyUsage):
                assert sum(row.requests for row in model.objects.all()) == entries

        def teardown(self) -> None:
            self.stream.breaks_after = None
            while asyncio.run(self.shipper.ship()):
                pass
            self.move()
            ids = set(LedgerEntry.objects.values_list("pk", flat=True))
            assert ids == {f"{number:032x}" for number in range(self.appended)}
            assert (client.xlen(STREAM), self.journal.dropped) == (0, 0)
            self.journal.close()
            shutil.rmtree(self.folder)

    def killed_at_once(**_: object) -> None:
        raise KilledError

    run_state_machine_as_test(Delivery, settings=settings(max_examples=25, stateful_step_count=20))
    client.close()
