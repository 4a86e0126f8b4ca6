"""The scheduling extension points: filter, score, pick, and which profiles to run.

All are plain functions: they run inside the decision, may not block, and see columns of the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from dataplane.errors import RequestError, ResourceExhaustedError
from epp.interfaces.endpoint import Candidates, Endpoint, Floats
from epp.interfaces.request import InferenceRequest


class ScorerCategory(StrEnum):
    """What a scorer prefers; metadata for people and consoles."""

    AFFINITY = "Affinity"
    DISTRIBUTION = "Distribution"
    BALANCE = "Balance"


@runtime_checkable
class Filter(Protocol):
    """Narrows the candidates. An empty result ends the profile with 429."""

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates: ...


@runtime_checkable
class Reasoning(Protocol):
    """What a filter or a screener may offer besides: it says why it removed an endpoint."""

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """Why ``endpoint`` was not kept among ``candidates``, in a few words of text and figures.

        Asked right after the decision and before anything is booked, and only for requests that are traced.
        """
        ...


@runtime_checkable
class Scorer(Protocol):
    """Scores every candidate in [0, 1], higher is better; values outside are clamped.

    A scorer whose formula cannot leave [0, 1] or yield NaN may say so with ``bounded = True``: its scores
    are then taken as they are, in the array it returns.
    """

    category: ClassVar[ScorerCategory]

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats: ...


@runtime_checkable
class FewScorer(Scorer, Protocol):
    """A scorer that can also score at most ``FEW`` candidates without numpy, to the same values."""

    def score_few(self, request: InferenceRequest, candidates: Candidates) -> list[float]:
        """Scores within [0, 1], parallel to the candidates."""
        ...


@runtime_checkable
class Picker(Protocol):
    """Chooses positions among the candidates by total score; the first is the primary."""

    def pick(self, request: InferenceRequest, candidates: Candidates, totals: Floats) -> Sequence[int]: ...


class ScorerTrace(msgspec.Struct):
    """One scorer's part in a decision."""

    name: str
    weight: float
    scores: Floats | list[float]


class FilterTrace(msgspec.Struct):
    """One filter's part in a decision."""

    name: str
    before: int
    left: Candidates
    """What it left."""

    @property
    def after(self) -> int:
        """How many it left."""
        return len(self.left)


class FiltersDrainedError(ResourceExhaustedError):
    """The filters of a profile left nobody; ``filters`` are those that ran, the last one is to blame."""

    def __init__(self, message: str, filters: list[FilterTrace]) -> None:
        super().__init__(message)
        self.filters = filters


class ProfileResult(msgspec.Struct):
    """Outcome of one profile: the picked endpoints, first is primary, and how it came about."""

    profile: str
    endpoints: list[Endpoint]
    candidates: Candidates
    totals: Floats
    scorers: list[ScorerTrace]
    filters: list[FilterTrace]


class SchedulingResult(msgspec.Struct):
    """All profile results by name, and which one names the destination."""

    results: dict[str, ProfileResult]
    primary: str
    decision: str = ""
    """Which kind of decision it is, of a profile handler that knows several; a word to count under."""
    left_out: Sequence[str] = ()
    """Stages that were wanted but found no endpoint."""
    prefill: str = ""
    """Profile whose endpoint computes the prompt for the destination; empty = the destination does."""
    encode: str = ""
    """Profile whose endpoints encode images, audio and video for the request; empty = nobody else does."""
    fallbacks: Sequence[Endpoint] = ()
    """Endpoints to name behind those picked, best first."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """Destination endpoints in order of preference."""
        return self.results[self.primary].endpoints

    @property
    def destinations(self) -> list[Endpoint]:
        """All endpoints that the proxy is told of, in order."""
        return [*self.endpoints, *self.fallbacks] if self.fallbacks else self.endpoints

    @property
    def prefill_endpoint(self) -> Endpoint | None:
        """Where the prompt is computed when that is not the destination itself."""
        if not self.prefill:
            return None
        endpoint = self.results[self.prefill].endpoints[0]
        return None if endpoint is self.endpoints[0] else endpoint


class SchedulingProfile(Protocol):
    """A named filter-score-pick chain, ready to run."""

    name: str

    def run(self, request: InferenceRequest, candidates: Candidates) -> ProfileResult: ...


@runtime_checkable
class ProfileHandler(Protocol):
    """Decides which profiles run, and which result is primary.

    ``profiles`` is asked again with the results so far until it answers none. A profile whose run
    failed is present with None.
    """

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]: ...

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult: ...


@runtime_checkable
class FailureJudge(Protocol):
    """What a profile handler may offer besides: it says what failed profiles mean for the request.

    Without it a request fails when no profile succeeded, with the error of the first.
    """

    def judge(self, failures: Mapping[str, RequestError]) -> RequestError | None:
        """The request's error, given those of at least one profile by name; None to go on without these."""
        ...


@runtime_checkable
class StageDecider(Protocol):
    """Says for a request whether a stage of its own (prefill, encode) is worth while."""

    def wants_stage(self, request: InferenceRequest, endpoint: Endpoint | None) -> bool:
        """``endpoint`` is where the request would be served without that stage; None = not known yet."""
        ...


@runtime_checkable
class ProfileCheck(Protocol):
    """What a profile handler may offer besides: a look at the configured profiles at start."""

    def check_profiles(self, names: Sequence[str]) -> None:
        """``ConfigError`` when the handler cannot work with profiles of these names."""
        ...
