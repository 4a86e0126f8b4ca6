"""The last decisions, kept for people who ask why.

Two ring buffers of references. The first holds a light record of every decision, which keeps the arrays that
the decision made anyway; the second keeps the traced ones longer, whose records let go of those arrays, so
that it is small whatever the size of the pool. Recording costs one object, and text is made only when
somebody reads, one record at a time. Records hold no body, prompt or header but the request id, the model and
the fairness id; these are the client's to choose, so they are cut to ``MAX_TEXT`` and cleaned of what JSON
cannot say.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from epp.explain.describe import describe
from epp.interfaces.scheduling import SchedulingResult
from epp.interfaces.trace import DecisionTrace

MAX_TRACES: Final = 256
"""Traced decisions kept; each is at most some tens of kilobytes."""

MAX_SEARCHED: Final = 20_000
"""Records, newest first, among which those of a query are looked for: requests wait meanwhile."""

MAX_FOUND: Final = 200
"""Decisions shown of one request id: a client may give the same to all its requests."""

MAX_TEXT: Final = 256
"""Characters kept of a text that a client chose."""


class DecisionRecord(msgspec.Struct):
    """One decision. ``ended_at`` etc. are filled in when the response is over."""

    request_id: str
    decided_at: float
    """Seconds since the epoch."""
    model: str
    target_model: str
    priority: int
    fairness_id: str
    prompt_bytes: int
    duration_s: float
    """Time from the complete body to the decision."""
    config: str = ""
    """Revision of the configuration that decided."""
    result: SchedulingResult | None = None
    """None for a request that was rejected, and for one that is traced."""
    trace: DecisionTrace | None = None
    error: str = ""
    stage: str = ""
    """Where it was rejected; empty when it was not."""
    matched_blocks: float = 0.0
    total_blocks: int = 0
    block_size: int = 0
    served: str = ""
    status: int = 0
    ending: str = ""
    """rejected, natural, client-disconnect or error; empty while the response is awaited."""
    ttft_s: float | None = None
    cached_tokens: int | None = None
    trace_id: str = ""
    """Of its spans, in hexadecimal digits; empty when they are not recorded."""
    number: int = 0
    """Rises from record to record of one log."""

    @property
    def endpoints(self) -> list[str]:
        """Addresses of the destination, in order of preference."""
        if self.trace is not None:
            return [spec.key for spec in self.trace.destination]
        return [] if self.result is None else [endpoint.key for endpoint in self.result.destinations]


class DecisionQuery(msgspec.Struct, frozen=True):
    """Which decisions to list; what is empty does not matter."""

    limit: int = 20
    model: str = ""
    """As asked for or as sent on."""
    endpoint: str = ""
    """``ip:port`` that was chosen or that served."""
    ending: str = ""
    """As in the record; ``running`` = the response is awaited."""
    traced: bool = False

    def matches(self, record: DecisionRecord) -> bool:
        """Whether a record is asked for."""
        return (
            (not self.traced or record.trace is not None)
            and (not self.model or self.model in (record.model, record.target_model))
            and (not self.ending or self.ending == (record.ending or "running"))
            and (not self.endpoint or self.endpoint == record.served or self.endpoint in record.endpoints)
        )


class DecisionLog:
    """Bounded history of decisions, newest last."""

    def __init__(
        self, size: int, wall_clock: Callable[[], float] = time.time, *, traces: int = MAX_TRACES
    ) -> None:
        self._records: deque[DecisionRecord] = deque(maxlen=size)
        self._traced: deque[DecisionRecord] = deque(maxlen=traces)
        self._wall_clock = wall_clock
        self._count = 0

    def add(self, record: DecisionRecord) -> None:
        """Keep a record; the oldest makes room."""
        self._count = record.number = self._count + 1
        record.decided_at = self._wall_clock()
        chosen = f"{record.request_id}{record.model}{record.target_model}{record.fairness_id}"
        if len(chosen) > MAX_TEXT or not chosen.isascii():
            record.request_id = clean(record.request_id)
            record.model = clean(record.model)
            record.target_model = clean(record.target_model)
            record.fairness_id = clean(record.fairness_id)
        self._records.append(record)
        if record.trace is not None:
            record.result = None
            self._traced.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def recent(self, query: DecisionQuery | int = 20) -> Iterator[dict[str, Any]]:
        """The newest decisions asked for as JSON-able data, newest first, made one by one."""
        if isinstance(query, int):
            query = DecisionQuery(limit=query)
        kept = reversed(self._traced) if query.traced else self._newest_first()
        searched = islice(kept, MAX_SEARCHED)
        return map(describe, list(islice(filter(query.matches, searched), query.limit)))

    def find(self, request_id: str) -> Iterator[dict[str, Any]]:
        """The newest kept decisions of this request id; ids are the client's, so not unique."""
        wanted = clean(request_id)
        found = (record for record in self._newest_first() if record.request_id == wanted)
        return map(describe, list(islice(found, MAX_FOUND)))

    def _newest_first(self) -> Iterator[DecisionRecord]:
        """The records of both buffers, each once: traced ones are in the first as well, while it has room."""
        yield from reversed(self._records)
        oldest = self._records[0].number if self._records else self._count + 1
        yield from (record for record in reversed(self._traced) if record.number < oldest)


def clean(text: str) -> str:
    """At most ``MAX_TEXT`` characters; those that are no Unicode text, such as stray bytes, become "?"."""
    if text.isascii() and len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
