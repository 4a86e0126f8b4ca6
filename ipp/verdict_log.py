"""Where verdicts of guardrails go: counters, the log, and a Valkey stream that the control plane reads.

A verdict says where something was and of which kind; nothing of a text is in it. Telling never delays a
request: what cannot be delivered waits in a queue with a cap, beyond which the oldest are dropped and
counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from dataplane import valkey
from dataplane.verdicts import FIELD, MAX_ENTRIES, STREAM, VerdictRecord
from ipp.guardrails.verdicts import Verdict
from ipp.metrics import IppMetrics

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000
PERIOD_S: Final = 0.5
BATCH: Final = 500


class VerdictLog:
    """Takes verdicts of exchanges. ``url`` empty = they are counted and logged only."""

    def __init__(self, metrics: IppMetrics, processor: str, url: str) -> None:
        """``ConfigError`` when the address is none."""
        self._processor = processor
        self._client: Redis | None = valkey.connect(url, "--valkey-url") if url else None
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_heard = True
        self.blocked = 0
        """Exchanges that were ended by a rule."""
        self.blocked_by: dict[str, int] = {}
        """The same by policy; one exchange may be ended by several."""
        self._encode = msgspec.json.Encoder().encode
        numbers = metrics.numbers
        self._verdicts = numbers.counter(
            "pointsman_ipp_guardrail_verdicts_total",
            "What guardrails found, by what they did about it.",
            ("policy", "rule", "type", "stage", "action"),
        )
        self._seconds = numbers.histogram(
            "pointsman_ipp_guardrail_seconds",
            "Time that guardrails took for one body.",
            (0.0001, 0.0005, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0),
            ("stage",),
        )
        self._dropped = numbers.counter(
            "pointsman_ipp_guardrail_verdicts_dropped_total", "Verdicts that Valkey was not told of."
        ).child()

    def took(self, stage: str, seconds: float) -> None:
        """A body was looked at for so long."""
        self._seconds.child(stage).observe(seconds)

    def tell(self, request_id: str, tenant: str, model: str, pool: str, verdicts: Sequence[Verdict]) -> None:
        """Verdicts of one exchange."""
        for verdict in verdicts:
            self._verdicts.child(
                verdict.policy, verdict.rule, verdict.type, verdict.stage, verdict.action
            ).inc()
        blocking = {verdict.policy for verdict in verdicts if verdict.action == "block"}
        if blocking:
            self.blocked += 1
            for policy in blocking:
                self.blocked_by[policy] = self.blocked_by.get(policy, 0) + 1
        first = verdicts[0]
        log.info(
            "guardrails: request %s: %d verdicts, first: %s of policy %s: %s in %s of the %s (%s)",
            request_id or "-",
            len(verdicts),
            first.rule,
            first.policy,
            first.kind,
            first.path or "the body",
            first.stage,
            first.action,
        )
        if self._client is None:
            return
        now = time.time()
        for verdict in verdicts:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self._dropped.inc()
            fields = msgspec.structs.asdict(verdict)
            record = VerdictRecord(
                at=now,
                processor=self._processor,
                request_id=request_id[:128],
                tenant=tenant[:253],
                model=model[:256],
                pool=pool[:253],
                **fields,
            )
            self._waiting.append(self._encode(record))

    def start(self) -> None:
        """Begin to deliver."""
        if self._client is not None:
            self._task = asyncio.get_running_loop().create_task(self._deliver(), name="verdicts")

    async def stop(self) -> None:
        """Deliver what waits, once, and end. Safe in any state."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._client is not None:
            await self._flush(self._client)
            await self._client.aclose()

    async def _deliver(self) -> None:
        assert self._client is not None  # noqa: S101 - only started with one
        while True:
            await asyncio.sleep(PERIOD_S)
            await self._flush(self._client)

    async def _flush(self, client: Redis) -> None:
        from redis import RedisError

        while self._waiting:
            batch = [self._waiting[index] for index in range(min(BATCH, len(self._waiting)))]
            try:
                async with client.pipeline(transaction=False) as pipeline:
                    for record in batch:
                        pipeline.xadd(STREAM, {FIELD: record}, maxlen=MAX_ENTRIES, approximate=True)
                    await pipeline.execute()
            except (RedisError, OSError) as error:
                if self._is_heard:
                    log.warning("verdicts wait: Valkey: %s", error)
                self._is_heard = False
                return
            self._is_heard = True
            for record in batch:
                if self._waiting and self._waiting[0] is record:
                    self._waiting.popleft()
