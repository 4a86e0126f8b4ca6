"""Keep account of the work in flight to each endpoint, in requests and in tokens.

Requests are booked in the endpoint table by the director; this plugin adds the tokens they stand for, in the
table's ``inflight_tokens`` column, at the moment a request is sent. Tokens still to be computed are those of
the prompt that the endpoint does not hold already, plus the expected output if so configured. The prompt's
share is released at the first byte of the response, the rest at its end.

Where another endpoint computes the prompt for the destination, the prompt's tokens are booked there as well.

Each request carries its own entries, so a release happens once whatever the order of events, and an entry of
an endpoint that has left is void: its successor in the same slot has another generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import highest, listing
from epp.interfaces.attributes import (
    INFLIGHT_LOAD,
    PREFIX_MATCH,
    TOKENIZED_PROMPT,
    InflightLoad,
    produced_by,
)
from epp.interfaces.endpoint import Candidates, Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest, ResponseSummary
from epp.interfaces.scheduling import SchedulingResult

MAX_EXPECTED_TOKENS: Final = 1 << 31
"""Output expected of one request at most; the ledger's sums stay exact for four million of such."""


class InflightLoadParams(PluginParams, frozen=True):
    """Parameters of inflight-load-producer."""

    add_estimated_output_tokens: bool = False
    """Whether tokens still to be generated count as load."""
    output_ratio: Annotated[float, msgspec.Meta(ge=0)] = 1.5
    """Expected output tokens per prompt token."""
    max_estimated_output_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Cap of the estimate; absent = none but the client's own limit."""
    prefix_match_info_producer_name: str = ""
    """Producer whose matches lower the load; empty = approx-prefix-cache-producer, if there is one."""
    sync_cross_replica_state: bool = True
    """Accepted for compatibility; this build shares no state between replicas."""


class _Entry(msgspec.Struct, gc=False):
    """Tokens booked for one request and not yet released."""

    slot: int
    generation: int
    input_tokens: int
    output_tokens: int


class InflightLoadProducer:
    """Produces InFlightLoad and keeps the token ledger."""

    info: ClassVar = PluginInfo("inflight-load-producer", InflightLoadParams)
    name: TypedName

    def __init__(self, name: TypedName, params: InflightLoadParams, handle: Handle) -> None:
        other = next((p for p in handle.plugins.values() if isinstance(p, InflightLoadProducer)), None)
        if other is not None:
            raise ConfigError(f"the pool has one token ledger, and '{other.name.name}' keeps it; remove one")
        self.name = name
        self._table = handle.table
        self._params = params
        self.warnings = (
            ["syncCrossReplicaState has no effect: no state is shared between replicas"]
            if handle.parameters.get("syncCrossReplicaState")
            else []
        )
        self._key = produced_by(INFLIGHT_LOAD, name.name)
        self._match = produced_by(PREFIX_MATCH, params.prefix_match_info_producer_name)
        self._entries: DataKey[list[_Entry]] = DataKey("InFlightEntries", name.name)
        self.produces: Sequence[DataKey[Any]] = (self._key,)
        is_named = bool(params.prefix_match_info_producer_name)
        self.consumes: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT, *((self._match,) if is_named else ()))
        self.may_consume: Sequence[DataKey[Any]] = () if is_named else (self._match,)

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        """Publish the load of each candidate as it is before this request."""
        table, slots = self._table, candidates.slots
        load = InflightLoad(candidates, table.inflight[slots], table.inflight_tokens[slots])
        request.put(self._key, load)

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Book the request's tokens on the primary endpoint, and the prompt's where else it is computed."""
        self._release(request, whole=True)
        prompt = request.get(TOKENIZED_PROMPT)
        tokens = prompt.tokens if prompt is not None else 0
        entries = [self._book(request, result.endpoints[0], tokens, self._expected_output(request, tokens))]
        if result.prefill_endpoint is not None:
            entries.append(self._book(request, result.prefill_endpoint, tokens, 0))
        request.put(self._entries, entries)

    def _book(self, request: InferenceRequest, endpoint: Endpoint, tokens: int, output: int) -> _Entry:
        uncached = self._uncached(request, endpoint, tokens)
        self._table.inflight_tokens[endpoint.slot] += uncached + output
        return _Entry(endpoint.slot, endpoint.generation, uncached, output)

    def on_first_byte(self, request: InferenceRequest) -> None:
        """The prompt is computed."""
        self._release(request, whole=False)

    def on_response_end(self, request: InferenceRequest, summary: ResponseSummary) -> None:
        """Nothing of the request is left to do."""
        self._release(request, whole=True)

    def dump_state(self) -> dict[str, Any]:
        """What is in flight: totals, and the endpoints that have most requests."""
        table = self._table
        rows = ((slot, table.endpoints[slot]) for slot in highest(table.inflight, table.all().slots))
        busy = (
            {
                "endpoint": endpoint.spec.id,
                "address": endpoint.key,
                "requests": int(table.inflight[slot]),
                "tokens": int(table.inflight_tokens[slot]),
            }
            for slot, endpoint in rows
            if endpoint is not None
        )
        return {
            "requests": int(table.inflight.sum()),
            "tokens": int(table.inflight_tokens.sum()),
            **listing("endpoints", busy, int((table.inflight > 0).sum())),
        }

    def _release(self, request: InferenceRequest, *, whole: bool) -> None:
        for entry in request.get(self._entries) or ():
            tokens, entry.input_tokens = entry.input_tokens, 0
            if whole:
                tokens += entry.output_tokens
                entry.output_tokens = 0
            if tokens and self._table.generation[entry.slot] == entry.generation:
                self._table.inflight_tokens[entry.slot] -= tokens

    def _uncached(self, request: InferenceRequest, endpoint: Endpoint, tokens: int) -> int:
        """Prompt tokens the endpoint has to compute: all but the blocks it holds."""
        match = request.get(self._match)
        if match is None or not match.total:
            return tokens
        position = (match.candidates.slots == endpoint.slot).argmax()
        return max(0, tokens - int(match.matched[position]) * match.block_size)

    def _expected_output(self, request: InferenceRequest, tokens: int) -> int:
        """Whole tokens, so that the ledger returns to exactly 0."""
        params = self._params
        if not params.add_estimated_output_tokens:
            return 0
        caps = [MAX_EXPECTED_TOKENS, params.max_estimated_output_tokens, request.parsed.max_output_tokens]
        expected = min(tokens * params.output_ratio, *(cap for cap in caps if cap is not None))
        return max(0, int(expected))
