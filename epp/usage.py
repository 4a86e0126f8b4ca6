"""Usage of this picker: a record for each request that was given an endpoint, once it is over.

The record is in the journal before the picker lets the end of the answer pass, so a client that has its whole
answer is counted even if the picker is killed right then. Only a picker with ``--usage-journal`` has one of
these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dataplane import valkey
from dataplane.observability.exposition import MetricSet
from dataplane.usage.journal import Journal
from dataplane.usage.record import RecordIds, UsageRecord, clean
from dataplane.usage.shipper import Shipper
from epp.interfaces.request import InferenceRequest, ResponseSummary
from epp.metrics.catalog import OWN_PREFIX
from epp.options import EppOptions

MAX_TOKENS: Final = 1 << 40


def usage_log(options: EppOptions, metrics: MetricSet) -> UsageLog | None:
    """What the flags ask for; None when usage is not recorded. ``ConfigError`` when it cannot be."""
    if not options.usage_journal:
        return None
    found = UsageLog(options.pool_name, options.usage_journal, options.usage_journal_size, options.valkey_url)
    found.declare(metrics)
    return found


class UsageLog:
    """Makes records, and owns what becomes of them."""

    def __init__(self, pool: str, folder: str, max_bytes: int, url: str) -> None:
        """``ConfigError`` when the journal cannot be used or the address is none."""
        from dataplane.usage.stream import UsageStream

        client = valkey.connect(url, "--valkey-url")
        self._pool = pool
        self._ids = RecordIds()
        self.journal = Journal(Path(folder), max_bytes=max_bytes)
        self._shipper = Shipper(self.journal, UsageStream(client))

    def book(self, request: InferenceRequest, summary: ResponseSummary, revision: str) -> None:
        """Keep a record of a request that is over."""
        prompt, cached, completion = summary.tokens
        self.journal.append(
            UsageRecord(
                id=self._ids(),
                at=time.time(),
                pool=self._pool,
                requested_model=clean(request.model),
                served_model=clean(request.target_model),
                tenant=clean(request.fairness_id),
                objective=clean(request.objective),
                status=summary.status,
                ending=summary.cause,
                prompt_tokens=_count(prompt),
                completion_tokens=_count(completion),
                cached_tokens=_count(cached),
                streamed=summary.streaming,
                duration_s=summary.duration_s,
                ttft_s=summary.ttft_s,
                revision=revision,
            )
        )

    def declare(self, metrics: MetricSet) -> None:
        """Add what there is to see of it."""
        journal, shipper = self.journal, self._shipper

        def add(name: str, text: str, value: Callable[[], int], kind: str = "counter") -> None:
            metrics.computed(OWN_PREFIX + name, text, (), lambda: [((), value())], kind=kind)

        add("usage_records_total", "Usage records written to the journal.", lambda: journal.written)
        add("usage_records_dropped_total", "Usage records lost for want of room.", lambda: journal.dropped)
        add("usage_records_shipped_total", "Usage records delivered to Valkey.", lambda: shipper.shipped)
        add("usage_journal_bytes", "Usage records that Valkey lacks.", lambda: journal.pending_bytes, "gauge")

    def start(self) -> None:
        """Begin to deliver."""
        self._shipper.start()

    async def stop(self) -> None:
        """Deliver what is quickly delivered, and close the journal."""
        await self._shipper.stop()
        self.journal.close()


def _count(tokens: int | None) -> int | None:
    """A model server's word, if it can be true."""
    return tokens if tokens is not None and 0 <= tokens <= MAX_TOKENS else None
