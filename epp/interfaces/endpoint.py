"""Endpoints of one pool as a struct of arrays, with the ledger of what is in flight to them.

Scheduling reads columns (numpy arrays indexed by slot), never a graph of objects, so that a decision
over a thousand endpoints costs a few vector operations. One asyncio thread owns the table: discovery
adds and removes rows, the scraper writes measured columns, the director books requests in and out.

Two facts about load are kept apart. ``waiting``, ``running`` and ``kv_usage`` are what the server said
at its last scrape; ``unseen`` counts requests assigned since that scrape began, which the server could
not yet report. Queue depth as scorers see it is the sum, so a burst within one scrape interval spreads.

A row whose measurements are older than the threshold is stale. What is known of it loses weight gradually
(``trust``) in favour of a pessimistic guess; see ``Candidates.cautious``.

A slot is reused after its endpoint is gone; ``generation`` tells the tenants of a slot apart, so a late
release of a departed endpoint's request never touches its successor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataplane.addresses import host_port
from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint_attributes import EndpointAttributes

Floats = NDArray[np.float64]
Slots = NDArray[np.intp]

FEW: Final = 16
"""Candidates up to which a decision works on lists: a call into numpy costs as much as sixteen elements."""

STALE_PENALTY: Final = 5.0
"""Waiting requests by which a row without fresh metrics looks busier than the busiest fresh one."""

MOMENT_S: Final = 1e-9

MAX_ENDPOINTS: Final = 20_000
"""Rows one table may hold; discovery refuses more."""


_MEASURED: Final = (
    "waiting", "running", "kv_usage", "inflight", "inflight_tokens", "unseen", "unseen_next",
    "fresh", "trust", "gone", "ejected", "warm_since", "updated_at", "round_s", "block_size",
    "num_blocks",
)  # fmt: skip
"""Columns that speak of the endpoint in a slot and are cleared when it leaves."""


class EndpointSpec(msgspec.Struct, frozen=True):
    """What discovery knows about one endpoint. ``address`` is an IP literal, ``key`` its ``ip:port``."""

    name: str
    namespace: str
    address: str
    port: int
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    metrics_host: str = ""
    """``host:port`` to scrape; empty means ``key``."""
    metrics_scheme: str = ""
    """``http`` or ``https``; empty means the data source's."""
    rank: int = 0
    """Index among the data-parallel ranks of one server, each of which is an endpoint."""
    models: tuple[str, ...] = ()
    """Models it serves, if discovery says so."""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        """``ip:port`` as the destination header spells it (IPv6 in brackets)."""
        return host_port(self.address, self.port)

    @property
    def id(self) -> str:
        """``namespace/name``, the identity under which discovery reports changes."""
        return f"{self.namespace}/{self.name}"


class Endpoint:
    """One row: the spec, its slot and generation, and the LoRA adapters its server reports."""

    __slots__ = ("active_models", "generation", "key", "max_active_models", "slot", "spec", "waiting_models")

    def __init__(self, spec: EndpointSpec, slot: int, generation: int) -> None:
        self.spec = spec
        self.key = spec.key
        self.slot = slot
        self.generation = generation
        self.active_models: frozenset[str] = frozenset()
        self.waiting_models: frozenset[str] = frozenset()
        self.max_active_models = 0

    def __repr__(self) -> str:
        return f"Endpoint({self.spec.id} at {self.key})"


class Booking(NamedTuple):
    """A request booked on an endpoint; hand it back to ``release`` exactly once."""

    slot: int
    generation: int
    epoch: int
    """Number of the endpoint's latest scrape when booked: only a later one can have seen the request."""


class EndpointTable:
    """All endpoints of the pool. Columns are arrays of length ``capacity``; dead slots hold zeros."""

    def __init__(self, capacity: int = 16) -> None:
        self.capacity = capacity
        self.endpoints: list[Endpoint | None] = [None] * capacity
        self.waiting: Floats = np.zeros(capacity)
        self.running: Floats = np.zeros(capacity)
        self.kv_usage: Floats = np.zeros(capacity)
        """KV-cache utilisation, 0 to 1."""
        self.inflight: Floats = np.zeros(capacity)
        """Requests booked and not yet released."""
        self.inflight_tokens: Floats = np.zeros(capacity)
        """Tokens those requests still have to be computed for, as estimated by inflight-load-producer."""
        self.unseen: Floats = np.zeros(capacity)
        """Requests in flight that were booked after the scrape behind the measured columns began."""
        self.unseen_next: Floats = np.zeros(capacity)
        """The same for the scrape under way."""
        self.fresh = np.zeros(capacity, dtype=np.bool_)
        """Whether the measured columns are younger than the staleness threshold."""
        self.trust: Floats = np.zeros(capacity)
        """What the last measurement of a stale row still counts for, 0 to 1; a fresh row's counts in full."""
        self.gone = np.zeros(capacity, dtype=np.bool_)
        """Whether nobody listens at the endpoint's own address, as far as is known."""
        self.ejected = np.zeros(capacity, dtype=np.bool_)
        """Whether the endpoint is left out because it failed requests."""
        self.warm_since: Floats = np.zeros(capacity)
        """When the endpoint came or came back, on the monotonic clock; 0 = it is warm."""
        self.updated_at: Floats = np.zeros(capacity)
        self.round_s: Floats = np.zeros(capacity)
        """Seconds between the last two measurements of a row that was fresh all the while; 0 = unknown."""
        self.block_size = np.zeros(capacity, dtype=np.int64)
        """Engine KV block size in tokens; 0 = unknown."""
        self.num_blocks = np.zeros(capacity, dtype=np.int64)
        """Engine KV capacity in blocks; 0 = unknown."""
        self.epoch = np.zeros(capacity, dtype=np.int64)
        """Number of the latest scrape begun."""
        self.applied = np.zeros(capacity, dtype=np.int64)
        """Number of the scrape the measured columns come from."""
        self.generation = np.zeros(capacity, dtype=np.int64)
        self.attributes = EndpointAttributes(capacity)
        """What is known of the endpoints beyond the columns."""
        self.version = 0
        """Rises when rows come or go; caches of anything per row are valid for one version."""
        self.stale = 0
        """How many live rows are not fresh; 0 lets the hot path skip the question."""
        self.absent = 0
        """How many live rows are gone; likewise."""
        self.barred = 0
        """How many live rows are ejected; likewise."""
        self.warming = 0
        """How many live rows are not warm; likewise."""
        self._by_id: dict[str, Endpoint] = {}
        self._by_key: dict[str, Endpoint] = {}
        self._free = list(range(capacity - 1, -1, -1))
        self._all: Candidates | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, endpoint_id: str) -> Endpoint | None:
        """The endpoint discovery calls ``endpoint_id``."""
        return self._by_id.get(endpoint_id)

    def at(self, key: str) -> Endpoint | None:
        """The endpoint at ``ip:port``."""
        return self._by_key.get(key)

    def all(self) -> Candidates:
        """Every live endpoint; the same object until rows come or go."""
        if self._all is None:
            slots = np.array(sorted(e.slot for e in self._by_id.values()), dtype=np.intp)
            self._all = Candidates(self, slots, [e for s in slots if (e := self.endpoints[s]) is not None])
        return self._all

    def add(self, spec: EndpointSpec) -> Endpoint:
        """Insert a new endpoint. ``ValueError`` if its id or address is taken or the table is full."""
        if spec.id in self._by_id:
            raise ValueError(f"endpoint {spec.id} exists")
        if spec.key in self._by_key:
            raise ValueError(f"{spec.key} already belongs to endpoint {self._by_key[spec.key].spec.id}")
        if len(self._by_id) >= MAX_ENDPOINTS:
            raise ValueError(f"the pool already has {MAX_ENDPOINTS} endpoints, the most one picker serves")
        if not self._free:
            self._grow()
        slot = self._free.pop()
        endpoint = Endpoint(spec, slot, int(self.generation[slot]))
        self.endpoints[slot] = endpoint
        self._by_id[spec.id] = endpoint
        self._by_key[spec.key] = endpoint
        self.stale += 1
        self._changed()
        return endpoint

    def remove(self, endpoint_id: str) -> Endpoint | None:
        """Drop an endpoint and everything known of it; its running requests are forgotten here."""
        endpoint = self._by_id.pop(endpoint_id, None)
        if endpoint is None:
            return None
        slot = endpoint.slot
        del self._by_key[endpoint.key]
        if not self.fresh[slot]:
            self.stale -= 1
        self.absent -= int(self.gone[slot])
        self.barred -= int(self.ejected[slot])
        self.warming -= int(self.warm_since[slot] > 0)
        self.endpoints[slot] = None
        self.generation[slot] += 1
        for column in _MEASURED:
            getattr(self, column)[slot] = 0
        self.attributes.clear(slot)
        self._free.append(slot)
        self._changed()
        return endpoint

    def relabel(self, endpoint_id: str, spec: EndpointSpec) -> None:
        """Replace labels and metrics host of an endpoint whose address stays the same."""
        endpoint = self._by_id[endpoint_id]
        if spec.key != endpoint.key:
            raise ValueError("an address change is a removal and an addition")
        endpoint.spec = spec
        self._changed()

    def annotate(self, endpoint: Endpoint, key: DataKey[Any], value: Any) -> None:
        """Leave a value on an endpoint (None removes it); a no-op when the endpoint has left."""
        if self.generation[endpoint.slot] == endpoint.generation:
            self.attributes.put(endpoint.slot, key, value)

    def book(self, endpoint: Endpoint) -> Booking:
        """Count one request onto an endpoint, at the moment it is chosen."""
        slot = endpoint.slot
        self.inflight[slot] += 1
        self.unseen[slot] += 1
        self.unseen_next[slot] += 1
        return Booking(slot, endpoint.generation, int(self.epoch[slot]))

    def release(self, booking: Booking) -> None:
        """Count it off again; a no-op when the endpoint has left in between."""
        slot, generation, epoch = booking
        if self.generation[slot] != generation:
            return
        self.inflight[slot] -= 1
        if epoch >= self.applied[slot]:
            self.unseen[slot] -= 1
        if epoch == self.epoch[slot]:
            self.unseen_next[slot] -= 1

    def begin_scrape(self, slot: int) -> None:
        """A scrape of ``slot`` is sent: what is booked from here on it cannot report. One at a time."""
        self.epoch[slot] += 1
        self.unseen_next[slot] = 0

    def end_scrape(self, slot: int, now: float) -> None:
        """The scrape begun last has been written to the measured columns."""
        self.applied[slot] = self.epoch[slot]
        self.unseen[slot] = self.unseen_next[slot]
        if self.fresh[slot]:
            self.round_s[slot] = now - self.updated_at[slot]
        else:
            self.round_s[slot] = 0.0
            self.fresh[slot] = True
            self.stale -= 1
        self.updated_at[slot] = now

    def distrust(self, slot: int, *, gone: bool = False) -> None:
        """Mark one row as stale at once; ``gone``: nobody listens at the endpoint's own address."""
        if self.fresh[slot]:
            self.fresh[slot] = False
            self.stale += 1
        self.trust[slot] = 0.0
        if gone and not self.gone[slot]:
            self.gone[slot] = True
            self.absent += 1

    def reached(self, slot: int, now: float) -> None:
        """Somebody listens at the endpoint's address again; a server that has just come back warms up."""
        if self.gone[slot]:
            self.gone[slot] = False
            self.absent -= 1
            self.warm_up(slot, now)

    def eject(self, slot: int) -> None:
        """Leave the endpoint out of the candidates while others remain."""
        if not self.ejected[slot]:
            self.ejected[slot] = True
            self.barred += 1

    def readmit(self, slot: int) -> None:
        """Let an ejected endpoint be a candidate again."""
        if self.ejected[slot]:
            self.ejected[slot] = False
            self.barred -= 1

    def warm_up(self, slot: int, now: float) -> None:
        """The endpoint begins to serve, or begins again."""
        self.warming += int(self.warm_since[slot] == 0)
        self.warm_since[slot] = max(now, MOMENT_S)  # 0 says that it is warm

    def warmed_up(self, before: float) -> None:
        """Endpoints that began before that moment are warm."""
        slots = self.all().slots
        since = self.warm_since[slots]
        done = slots[(since > 0) & (since < before)]
        self.warm_since[done] = 0.0
        self.warming -= int(done.size)

    def expire(self, now: float, staleness_s: float) -> None:
        """Mark rows measured longer ago than ``staleness_s`` as stale; after twice that, trust is gone."""
        slots = self.all().slots
        age = now - self.updated_at[slots]
        old = slots[self.fresh[slots] & (age > staleness_s)]
        if old.size:
            self.fresh[old] = False
            self.trust[old] = 1.0
            self.stale += int(old.size)
        if self.stale:
            left = np.clip(2.0 - age / staleness_s, 0.0, 1.0)
            self.trust[slots] = np.minimum(self.trust[slots], left)

    def _changed(self) -> None:
        self.version += 1
        self._all = None

    def _grow(self) -> None:
        old, new = self.capacity, self.capacity * 2
        for column in (*_MEASURED, "epoch", "applied", "generation"):
            array = getattr(self, column)
            grown = np.zeros(new, dtype=array.dtype)
            grown[:old] = array
            setattr(self, column, grown)
        self.attributes.grow(new)
        self.endpoints.extend([None] * old)
        self._free = list(range(new - 1, old - 1, -1))
        self.capacity = new


class Candidates:
    """An ordered set of endpoints under consideration: filters narrow it, scorers score it.

    Position ``i`` of any array that belongs to it speaks of ``slots[i]``. Immutable.
    """

    __slots__ = ("_endpoints", "_kept", "_parent", "_slot_list", "slots", "table")

    def __init__(
        self, table: EndpointTable, slots: Slots, endpoints: Sequence[Endpoint] | None = None
    ) -> None:
        self.table = table
        self.slots = slots
        self._endpoints = endpoints
        self._parent: Candidates | None = None
        self._kept: NDArray[np.bool_] | None = None
        self._slot_list: list[int] | None = None

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The rows as objects, for what is not a column (labels, adapters); made when first asked for.

        A narrowed set takes them from the set it was narrowed from, so that a record of a decision names
        the endpoints of its own time even after slots have changed hands.
        """
        if self._endpoints is None:
            if self._parent is not None and self._kept is not None:
                self._endpoints = list(compress(self._parent.endpoints, self._kept))
            else:
                rows = self.table.endpoints
                self._endpoints = [e for s in self.slots if (e := rows[s]) is not None]
        return self._endpoints

    def endpoint(self, position: int) -> Endpoint:
        """The endpoint at one position."""
        return self.endpoints[position]

    def where(self, keep: NDArray[np.bool_]) -> Candidates:
        """Those whose position is true in ``keep``; itself when all are."""
        if keep.all():
            return self
        narrowed = Candidates(self.table, self.slots[keep])
        narrowed._parent, narrowed._kept = self, keep
        return narrowed

    def present(self, *, ejected_too: bool = False) -> Candidates:
        """Without the endpoints at which nobody listens and, unless ``ejected_too``, those ejected.

        When that would leave none, the ejected ones come back first, then the others.
        """
        table = self.table
        if table.barred and not ejected_too:
            keep = ~(table.gone[self.slots] | table.ejected[self.slots])
            if keep.any():
                return self.where(keep)
        if table.absent:
            keep = ~table.gone[self.slots]
            if keep.any():
                return self.where(keep)
        return self

    def cautious(self, known: Floats, penalty: Floats | float = 0.0) -> Floats:
        """Values per candidate, higher being worse, in which silence does not look like idleness.

        A fresh row's value is what is ``known`` of it, a stale row's ``trust * known + (1 - trust) * guess``.
        The guess is the worst of the fresh rows plus ``penalty`` but no better than what is known; without
        fresh rows it is the penalty alone. ``trust`` falls from 1 to 0 between once and twice the staleness
        threshold, and at once to 0 when nobody listens any more.
        """
        table, slots = self.table, self.slots
        if not table.stale:
            return known
        fresh = table.fresh[slots]
        guess = np.maximum(known, known[fresh].max() + penalty) if fresh.any() else penalty
        return np.where(fresh, known, guess + table.trust[slots] * (known - guess))

    def queue_depth(self) -> Floats:
        """Requests waiting per candidate: reported, plus those booked since that report began.

        A stale row is guessed at the longest fresh queue, ``STALE_PENALTY`` and everything in flight to it.
        """
        table, slots = self.table, self.slots
        depth = table.waiting[slots] + table.unseen[slots]
        return self.cautious(depth, STALE_PENALTY + table.inflight[slots]) if table.stale else depth

    def running(self) -> Floats:
        """Requests running per candidate as reported; stale rows by ``cautious``."""
        return self.cautious(self.table.running[self.slots])

    def few_queue_depths(self) -> list[float]:
        """``queue_depth`` as a list, for few candidates: below ``FEW`` lists are faster than arrays."""
        if self.table.stale:
            return list(map(float, self.queue_depth()))
        waiting, unseen = self.table.waiting.tolist(), self.table.unseen.tolist()
        return [waiting[slot] + unseen[slot] for slot in self.slot_list]

    def few_kv_usages(self) -> list[float]:
        """``kv_usage`` as a list, likewise."""
        if self.table.stale:
            return list(map(float, self.kv_usage()))
        usage = self.table.kv_usage.tolist()
        return [usage[slot] for slot in self.slot_list]

    @property
    def slot_list(self) -> list[int]:
        """``slots`` as a list, made when first asked for."""
        if self._slot_list is None:
            self._slot_list = self.slots.tolist()
        return self._slot_list

    def kv_usage(self) -> Floats:
        """KV-cache utilisation per candidate, 0 to 1; stale rows by ``cautious``."""
        return self.cautious(self.table.kv_usage[self.slots])
