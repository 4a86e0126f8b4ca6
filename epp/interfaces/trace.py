"""What one decision was based on: kept for the few requests that somebody asks about, or that are sampled.

``InferenceRequest.trace`` is None for all others, so that a request nobody asks about pays comparisons with
None. A trace is filled in by the director and the scheduler while the decision is made. What it shows it
copies at that moment: columns are overwritten by the next scrape and the next booking, specs are relabelled,
and what people read later must be what was true. The best ``MAX_ROWS`` candidates of a profile and the first
``MAX_REMOVED`` endpoints that a filter removed are kept, the others are counted, so that a trace of a large
pool is as small as one of a small pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from dataplane.errors import RequestError
from epp.interfaces.attributes import DEFAULT_PRODUCERS, PrefixMatch, aligned
from epp.interfaces.endpoint import Candidates, EndpointSpec, EndpointTable, Floats, Slots
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import (
    Filter,
    FiltersDrainedError,
    FilterTrace,
    ProfileResult,
    Reasoning,
    SchedulingResult,
)

MAX_ROWS: Final = 64
"""Candidates of a profile that are kept, best first; those picked and the runner-up are among them."""

MAX_REMOVED: Final = 32
"""Endpoints kept of those that one filter removed."""

MAX_STEPS: Final = 64
"""Verdicts of plugins kept."""

COLUMNS: Final = (
    "waiting", "running", "kv_usage", "unseen", "inflight", "inflight_tokens", "fresh", "trust",
)  # fmt: skip
"""Columns of the endpoint table whose values at the moment of the decision are kept."""


class Origin(StrEnum):
    """Why a decision is traced."""

    SAMPLED = "sampled"
    ASKED = "asked"
    """The request's header asks for it."""
    OFFLINE = "offline"
    """It is made by ``pointsman explain``, for no client."""


class Removed(msgspec.Struct):
    """An endpoint that a plugin removed."""

    spec: EndpointSpec
    reason: str
    """Empty when the plugin gives no reasons."""


class Verdict(msgspec.Struct):
    """What a plugin outside of the profiles said about the request."""

    stage: str
    plugin: str
    before: int
    """Candidates before it."""
    after: int
    """And after it; 0 when it refused the request."""
    reason: str = ""
    removed: list[Removed] = []
    """The first ``MAX_REMOVED`` endpoints that it removed."""


class FilterStep(msgspec.Struct):
    """One filter's part in a profile."""

    name: str
    before: int
    after: int
    removed: list[Removed]
    """The first ``MAX_REMOVED`` of them."""


class Rows(msgspec.Struct):
    """The candidates of a profile that are kept, in no particular order; arrays are parallel to ``specs``."""

    specs: list[EndpointSpec]
    picked: list[int]
    """Positions of those picked, the first one is the destination."""
    totals: Floats
    scores: list[Floats]
    """Scores of each scorer, not weighted, in order of the scorers."""
    updated_at: Floats
    """When the endpoint was last measured, on the clock of ``DecisionTrace.now``; 0 = never."""
    columns: list[Floats]
    """The table's columns of ``COLUMNS``."""
    matched: list[Floats]
    """Blocks of the prompt held, for each prefix match."""

    def order(self) -> list[int]:
        """Positions by total, best first; among equals those picked come first."""
        totals, picked = self.totals.tolist(), {position: i for i, position in enumerate(self.picked)}
        last = len(picked)
        return sorted(range(len(totals)), key=lambda i: (-totals[i], picked.get(i, last), i))


class ProfileTrace(msgspec.Struct):
    """One profile: what was left of its candidates, and why which of them was picked."""

    name: str
    filters: list[FilterStep]
    picker: str
    error: str = ""
    """Why the profile found nobody; then there are no rows."""
    candidates: int = 0
    """Candidates that were scored."""
    scorers: list[tuple[str, float]] = []
    """Name and weight."""
    rows: Rows | None = None
    picked: list[EndpointSpec] = []
    unlisted_ties: int = 0
    """Candidates with the total of the first picked that are not among the rows."""

    @property
    def won(self) -> float:
        """Total of the first picked."""
        return 0.0 if self.rows is None else float(self.rows.totals[self.rows.picked[0]])

    @property
    def ties(self) -> int:
        """Candidates with the total of the first picked, itself included."""
        listed = 0 if self.rows is None else int(np.count_nonzero(self.rows.totals == self.won))
        return listed + self.unlisted_ties

    def runner_up(self) -> tuple[EndpointSpec, float] | None:
        """The best candidate that was not picked, and its total."""
        rows = self.rows
        if rows is None:
            return None
        position = next((i for i in rows.order() if i not in rows.picked), None)
        return None if position is None else (rows.specs[position], float(rows.totals[position]))


class MatchTrace(msgspec.Struct):
    """One answer to how much of the prompt is already held."""

    producer: str
    total: int
    """Blocks of the prompt."""
    block_size: int
    """Tokens in a block."""


class RunnableProfile(Protocol):
    """What of a scheduling profile is looked at."""

    @property
    def filters(self) -> Sequence[tuple[str, Filter]]:
        """Filters by name, in order."""
        ...

    @property
    def picker(self) -> Any:
        """The picker."""
        ...


class DecisionTrace:
    """Collects one decision."""

    __slots__ = (
        "_failures",
        "_partial",
        "candidates",
        "decision",
        "destination",
        "ejected",
        "gone",
        "incomplete",
        "left_out",
        "matches",
        "now",
        "origin",
        "pool",
        "prefill",
        "primary",
        "profiles",
        "verdicts",
    )

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.now = 0.0
        """The moment of the decision on the clock that measures the age of data."""
        self.pool = 0
        """Endpoints in the pool."""
        self.candidates = 0
        """Those among them that the request may go to."""
        self.gone = 0
        """Endpoints of the pool at which nobody listens."""
        self.ejected = 0
        """Endpoints of the pool that are kept away from requests because they failed."""
        self.verdicts: list[Verdict] = []
        self.matches: list[MatchTrace] = []
        self.profiles: list[ProfileTrace] = []
        self.destination: list[EndpointSpec] = []
        self.primary = ""
        self.prefill = ""
        self.decision = ""
        self.left_out: list[str] = []
        self.incomplete = ""
        """Why what the decision was based on is not shown; empty when it is."""
        self._partial: Mapping[str, ProfileResult | None] = {}
        self._failures: Mapping[str, RequestError] = {}

    def located(self, table: EndpointTable, candidates: Candidates, now: float) -> None:
        """The request may go to ``candidates``; what was decided among fewer before is void."""
        self.profiles.clear()
        self.pool, self.candidates, self.now = len(table), len(candidates), now
        self.gone, self.ejected = table.absent, table.barred

    def screened(self, plugin: Any, request: InferenceRequest, before: Candidates, after: Candidates) -> None:
        """A screener had its say."""
        removed = _removed(plugin, request, before, after)
        self._judged(Verdict("screener", str(plugin.name.name), len(before), len(after), removed=removed))

    def admitted(self, plugin: Any, candidates: Candidates, denial: str | None) -> None:
        """An admitter had its say; ``denial`` is the reason why it refused."""
        count, name = len(candidates), str(plugin.name.name)
        if denial is None:
            self._judged(Verdict("admitter", name, count, count, "admitted"))
        else:
            self._judged(Verdict("admitter", name, count, 0, denial))

    def _judged(self, verdict: Verdict) -> None:
        if len(self.verdicts) < MAX_STEPS:
            self.verdicts.append(verdict)

    def failed(
        self, results: Mapping[str, ProfileResult | None], failures: Mapping[str, RequestError]
    ) -> None:
        """Profiles found nobody; whether that ends the request is not said here."""
        self._partial, self._failures = results, failures

    def decided(
        self,
        request: InferenceRequest,
        candidates: Candidates,
        profiles: Mapping[str, RunnableProfile],
        result: SchedulingResult | None,
    ) -> None:
        """Copy what the decision, or the failure to decide, was based on; nothing is booked yet."""
        if result is not None:
            self.destination = [endpoint.spec for endpoint in result.destinations]
            self.primary, self.prefill, self.decision = result.primary, result.prefill, result.decision
            self.left_out = list(result.left_out)
        try:
            self._copy(request, candidates, profiles, result)
        except Exception as error:  # noqa: BLE001 - as with reasons: what plugins leave may be odd
            self.incomplete = f"{type(error).__name__}: {error}"
        self._partial, self._failures = {}, {}

    def _copy(
        self,
        request: InferenceRequest,
        candidates: Candidates,
        profiles: Mapping[str, RunnableProfile],
        result: SchedulingResult | None,
    ) -> None:
        matches = [(key, v) for key, v in request.attributes.items() if isinstance(v, PrefixMatch)]
        self.matches = [
            MatchTrace(
                key.producer or DEFAULT_PRODUCERS.get(key.type_name, key.type_name),
                match.total,
                match.block_size,
            )
            for key, match in matches
        ]
        found = [match for _, match in matches]
        results = result.results if result is not None else self._partial
        for name in {**self._partial, **results}:
            profile = profiles[name]
            traced = ProfileTrace(name, [], str(profile.picker.name.name))
            outcome = results.get(name)
            if outcome is not None:
                traced.filters = _filter_steps(request, candidates, profile, outcome.filters)
                _score(traced, outcome, found)
            elif name in self._failures:
                error = self._failures[name]
                traced.error = error.message
                if isinstance(error, FiltersDrainedError):
                    traced.filters = _filter_steps(request, candidates, profile, error.filters)
            self.profiles.append(traced)


def _filter_steps(
    request: InferenceRequest,
    before: Candidates,
    profile: RunnableProfile,
    traces: Sequence[FilterTrace],
) -> list[FilterStep]:
    steps: list[FilterStep] = []
    for trace, (name, plugin) in zip(traces, profile.filters, strict=False):
        removed = _removed(plugin, request, before, trace.left)
        steps.append(FilterStep(name, trace.before, trace.after, removed))
        before = trace.left
    return steps


def _removed(plugin: Any, request: InferenceRequest, before: Candidates, after: Candidates) -> list[Removed]:
    """The first endpoints that a plugin removed, with its reasons if it gives any."""
    if len(after) == len(before):
        return []
    positions = np.flatnonzero(~np.isin(before.slots, after.slots))[:MAX_REMOVED]
    endpoints = [before.endpoint(position) for position in positions.tolist()]
    why = plugin.reason if isinstance(plugin, Reasoning) else None
    try:
        return [Removed(e.spec, "" if why is None else why(request, before, e)) for e in endpoints]
    except Exception as error:  # noqa: BLE001 - a decision must not fail because it cannot be explained
        return [Removed(e.spec, f"the plugin cannot say why: {error}") for e in endpoints]


def _score(traced: ProfileTrace, result: ProfileResult, matches: Sequence[PrefixMatch]) -> None:
    """Copy what was scored. What follows from it is worked out when somebody looks."""
    candidates, totals, table = result.candidates, result.totals, result.candidates.table
    endpoints = candidates.endpoints
    count = len(candidates)
    picked = [int((candidates.slots == e.slot).argmax()) for e in result.endpoints[: MAX_ROWS - 1]]
    traced.candidates = count
    traced.scorers = [(scorer.name, scorer.weight) for scorer in result.scorers]
    traced.picked = [endpoint.spec for endpoint in result.endpoints[: MAX_ROWS - 1]]
    if count <= MAX_ROWS:
        kept: Any = slice(None)
        slots = candidates.slots
    else:
        kept = _best(totals, picked)
        slots = candidates.slots[kept]
        endpoints = [endpoints[position] for position in kept.tolist()]
        won = totals[picked[0]]
        picked = list(range(len(picked)))
        traced.unlisted_ties = int(np.count_nonzero(totals == won) - np.count_nonzero(totals[kept] == won))
    traced.rows = Rows(
        specs=[endpoint.spec for endpoint in endpoints],
        picked=picked,
        totals=totals[kept].copy(),
        scores=[np.array(scorer.scores)[kept] for scorer in result.scorers],
        updated_at=table.updated_at[slots],
        columns=[getattr(table, name)[slots] for name in COLUMNS],
        matched=[np.array(aligned(m.matched, m.candidates, candidates)[kept]) for m in matches],
    )


def _best(totals: Floats, picked: list[int]) -> Slots:
    """Positions of those picked, in order, and of the best others; ``MAX_ROWS`` in all."""
    others = totals.copy()
    others[picked] = -np.inf
    first = totals.size - MAX_ROWS + len(picked)
    best = others.argpartition(first)[first:]
    return np.array([*picked, *best.tolist()], dtype=np.intp)
