"""What a processor knows of the models it may choose among, in tables that plugins fill and others read.

Each configuration has one store with one table of each class, made when somebody first asks for it, so that
plugins may be built in any order. Everything is owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

MAX_MODELS: Final = 1000
"""Models of one list, and models of which a table keeps anything."""


class ServedModel(NamedTuple):
    """A model that requests can be sent to. Immutable."""

    name: str
    groups: frozenset[str] = frozenset()
    """Names by which a request asks for one of several models."""
    input_price: float = 0.0
    """US dollars for a million tokens of prompts."""
    output_price: float = 0.0
    """US dollars for a million tokens of answers."""
    metrics_url: str = ""
    """Where the pool that serves it tells its load; empty = nowhere."""
    attributes: Mapping[str, str] = {}
    """What else filters may look at."""


class Table:
    """Base of what plugins fill and read. ``what`` and ``provider`` are for messages to operators."""

    what: ClassVar[str]
    provider: ClassVar[str]
    """The plugin type that usually fills it."""


T = TypeVar("T", bound=Table)


class ModelData:
    """The tables of one configuration."""

    def __init__(self) -> None:
        self._tables: dict[type[Table], Any] = {}

    def table(self, kind: type[T]) -> T:
        """The table of this class."""
        found: T | None = self._tables.get(kind)
        if found is None:
            found = self._tables[kind] = kind()
        return found


class ModelList(Table):
    """The models there are, in the order in which they are listed."""

    what = "a list of models"
    provider = "model-config-datasource"

    def __init__(self) -> None:
        self.models: tuple[ServedModel, ...] = ()


class Load:
    """What one model has to do at the moment."""

    __slots__ = ("requests", "tokens", "unbounded")

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0
        """The most that the answers of these requests may come to, as far as the requests say."""
        self.unbounded = 0
        """Those of them that do not say."""


class ModelLoads(Table):
    """Requests under way by model; models with none are left out."""

    what = "the requests in flight of each model"
    provider = "request-metadata-extractor"

    def __init__(self) -> None:
        self.by_model: dict[str, Load] = {}

    def requests(self, model: str) -> int:
        """How many requests the model has."""
        found = self.by_model.get(model)
        return 0 if found is None else found.requests

    def begin(self, model: str, tokens: int) -> bool:
        """A request goes out; ``tokens`` 0 = it does not say. False when too many models are counted."""
        load = self.by_model.get(model)
        if load is None:
            if len(self.by_model) >= MAX_MODELS:
                return False
            load = self.by_model[model] = Load()
        load.requests += 1
        load.tokens += tokens
        load.unbounded += tokens == 0
        return True

    def end(self, model: str, tokens: int) -> None:
        """A request that was counted is over."""
        load = self.by_model[model]
        load.requests -= 1
        load.tokens -= tokens
        load.unbounded -= tokens == 0
        if load.requests == 0:
            del self.by_model[model]


class PoolLoad(NamedTuple):
    """What the pool of a model says of itself; None = it does not."""

    utilization: float | None = None
    """Share of the KV cache in use."""
    cpu_usage: float | None = None
    """Share of the KV cache's second tier in use."""
    queue_depth: float | None = None
    running_requests: float | None = None


class PoolLoads(Table):
    """What pools say of themselves, by model; those that could not be asked are left out."""

    what = "the load of each model's pool"
    provider = "router-metrics-collector"

    def __init__(self) -> None:
        self.by_model: dict[str, PoolLoad] = {}


@runtime_checkable
class DataProvider(Protocol):
    """Fills tables, when it is listed in ``datalayer``."""

    provides: ClassVar[tuple[type[Table], ...]]


@runtime_checkable
class DataConsumer(Protocol):
    """Reads tables, which somebody has to fill."""

    needs: ClassVar[tuple[type[Table], ...]]
