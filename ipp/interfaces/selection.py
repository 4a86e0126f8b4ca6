"""The extension points of a model's selection, and of the data it goes by.

In a profile, a selector stands among the request plugins with its filters, scorers and picker beside it in
the same list. Filters narrow the candidates in the order in which they are listed, scores are added up by
weight, and the picker takes one candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from dataplane.errors import RequestError
from dataplane.extproc.exchange import Ending
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import TypedName
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel, Table
from ipp.interfaces.plugins import RequestProcessor


@runtime_checkable
class ModelFilter(Protocol):
    """Narrows the candidates."""

    name: TypedName

    def filter_models(
        self, request: RequestMessage, candidates: Sequence[ServedModel]
    ) -> Sequence[ServedModel]:
        """Those to keep."""
        ...


@runtime_checkable
class ModelScorer(Protocol):
    """Says how well each candidate would do."""

    name: TypedName

    def score_models(self, request: RequestMessage, candidates: Sequence[ServedModel]) -> Sequence[float]:
        """A score from 0 to 1 for each."""
        ...


@runtime_checkable
class ModelPicker(Protocol):
    """Takes one of the candidates."""

    name: TypedName

    def pick_model(self, request: RequestMessage, totals: Sequence[float]) -> int:
        """The position of one; there is at least one."""
        ...


class WeightedScorer(NamedTuple):
    """A scorer in a profile."""

    scorer: ModelScorer
    weight: float


@runtime_checkable
class ModelSelector(Protocol):
    """Chooses the model of a request with the help of others."""

    name: TypedName

    def with_helpers(
        self, filters: Sequence[ModelFilter], scorers: Sequence[WeightedScorer], picker: ModelPicker
    ) -> RequestProcessor:
        """What runs in a profile that lists these."""
        ...


@runtime_checkable
class Extractor(Protocol):
    """Learns from requests and answers that pass. Changes and ends nothing."""

    name: TypedName
    needs_first_byte: ClassVar[bool]

    def request_sent(self, request: RequestMessage) -> None:
        """The request goes to its model, all other plugins having run."""
        ...

    def first_byte(self, request: RequestMessage, status: int) -> None:
        """The first byte of the answer's body is here. Only for those that need it."""
        ...

    def exchange_over(self, request: RequestMessage, ending: Ending) -> None:
        """The exchange of a request that was sent is over, whatever happened. Called once."""
        ...


@runtime_checkable
class UsageExtractor(Protocol):
    """An extractor that learns how many tokens answers take as well."""

    name: TypedName

    @property
    def needs_usage(self) -> bool:
        """Whether it is to be told; read once, when the configuration is built."""
        ...

    def answer_used(self, request: RequestMessage, usage: Usage | None) -> None:
        """The exchange of an answer of status 200 to 299 is over; None = it did not say what it took.

        Called before ``exchange_over``.
        """
        ...


@runtime_checkable
class Collector(Protocol):
    """Asks others again and again, from ``start`` to ``close``."""

    name: TypedName

    async def collect(self) -> None:
        """One round."""
        ...


@runtime_checkable
class DataSource(Protocol):
    """Reads what an operator has written down, and follows it from ``start`` to ``close``."""

    name: TypedName

    async def read_source(self) -> Sequence[str]:
        """Read it now. What is wrong; then everything stays as it was."""
        ...


class Scored(NamedTuple):
    """How one selection came about."""

    candidates: Sequence[str]
    """Models that the filters have left."""
    scores: Sequence[tuple[str, float, Sequence[float]]]
    """Of each scorer its name, its weight and a score for each of them."""
    totals: Sequence[float]


class ScoreTrace(Table):
    """Whether anybody wants to know how selections come about; they are in a request's state then."""

    what = "how selections come about"
    provider = "scoring-debug-headers"

    def __init__(self) -> None:
        self.is_wanted = False


class Selected:
    """Key of a request's state under which its selected model is."""


class AskedFor:
    """Key of a request's state under which the model is that the client named, where another was selected."""


def serving_model(request: RequestMessage) -> str:
    """The model that a request is sent to; empty when it names none that can be read."""
    found: str | None = request.state.get(Selected)
    if found is not None:
        return found
    try:
        return request.model.strip() if request.body else ""
    except RequestError:
        return ""
