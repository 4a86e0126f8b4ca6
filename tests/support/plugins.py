"""Small plugins for tests of the plugin graph, and a registry that has them beside the built-in ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.graph.registry import REGISTRY
from epp.interfaces.data_layer import DiscoveredSet, Extractor, Measurements
from epp.interfaces.endpoint import Candidates, Endpoint, Floats
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult, ScorerCategory

LEFT: DataKey[int] = DataKey("Left")
RIGHT: DataKey[int] = DataKey("Right")


class Base:
    """What all have in common."""

    def __init__(self, name: TypedName, params: Any, handle: Handle) -> None:
        self.name = name
        self.params = params
        self.handle = handle


class AllFilter(Base):
    """A filter that keeps everybody."""

    info: ClassVar = PluginInfo("all-filter")

    def filter(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        return candidates


class FilterAndScorer(AllFilter):
    """Two roles in one plugin."""

    info: ClassVar = PluginInfo("filter-and-scorer")
    category: ClassVar = ScorerCategory.BALANCE

    def score(self, request: InferenceRequest, candidates: Candidates) -> Floats:
        return candidates.queue_depth()


class AlphaFilter(AllFilter):
    """An experimental filter."""

    info: ClassVar = PluginInfo("alpha-filter", stability=Stability.ALPHA)


class FussyParams(PluginParams, frozen=True):
    """Parameters the constructor may refuse."""

    size: int = 1


class FussyFilter(AllFilter):
    """A filter whose constructor refuses things."""

    info: ClassVar = PluginInfo("fussy-filter", FussyParams)

    def __init__(self, name: TypedName, params: FussyParams, handle: Handle) -> None:
        super().__init__(name, params, handle)
        self.warnings = ["size is large"] if params.size > 10 else []
        if params.size < 0:
            raise ConfigError("must not be negative", path="size")
        if params.size == 13:
            raise KeyError("luck")
        if params.size == 0:
            raise ValueError("nothing to filter")


class PairParams(PluginParams, frozen=True):
    """The name of another plugin."""

    other: str = ""

    def references(self) -> Mapping[str, str]:
        return {"other": self.other} if self.other else {}


class PairFilter(AllFilter):
    """A filter that refers to another plugin."""

    info: ClassVar = PluginInfo("pair-filter", PairParams)

    def __init__(self, name: TypedName, params: PairParams, handle: Handle) -> None:
        super().__init__(name, params, handle)
        self.other = handle.plugins[params.other] if params.other else None


class ManyHandler(Base):
    """A profile handler for any number of profiles, each of which must have a short name."""

    info: ClassVar = PluginInfo("many-handler")

    def check_profiles(self, names: Sequence[str]) -> None:
        for i, name in enumerate(names):
            if len(name) > 8:
                raise ConfigError("the name is too long", path=f"schedulingProfiles[{i}].name")

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        return ()

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        return SchedulingResult({}, "")


class LeftProducer(Base):
    """Makes LEFT out of RIGHT."""

    info: ClassVar = PluginInfo("left-producer")
    produces: Sequence[DataKey[Any]] = (LEFT,)
    consumes: Sequence[DataKey[Any]] = (RIGHT,)

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        request.put(LEFT, 1)


class RightProducer(Base):
    """Makes RIGHT out of nothing."""

    info: ClassVar = PluginInfo("right-producer")
    produces: Sequence[DataKey[Any]] = (RIGHT,)

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        request.put(RIGHT, 1)


class OddProducer(Base):
    """Leaves a number where a prefix match is expected."""

    info: ClassVar = PluginInfo("odd-producer")

    def __init__(self, name: TypedName, params: Any, handle: Handle) -> None:
        super().__init__(name, params, handle)
        self.produces: Sequence[DataKey[Any]] = (DataKey("PrefixCacheMatchInfo", name.name, int),)

    def produce(self, request: InferenceRequest, candidates: Candidates) -> None:
        request.put(self.produces[0], 1)


class RoundProducer(RightProducer):
    """Makes RIGHT out of LEFT, which closes a circle."""

    info: ClassVar = PluginInfo("round-producer")
    consumes: Sequence[DataKey[Any]] = (LEFT,)


class SelfProducer(RightProducer):
    """Makes LEFT out of LEFT."""

    info: ClassVar = PluginInfo("self-producer")
    produces: Sequence[DataKey[Any]] = (LEFT,)
    consumes: Sequence[DataKey[Any]] = (LEFT,)


class EarlyReader(Base):
    """Reads RIGHT when only the headers have been seen."""

    info: ClassVar = PluginInfo("early-reader")
    consumes: Sequence[DataKey[Any]] = (RIGHT,)

    def process_request_headers(self, request: InferenceRequest) -> None: ...


class LeftFilter(AllFilter):
    """A filter that needs LEFT."""

    info: ClassVar = PluginInfo("left-filter")
    consumes: Sequence[DataKey[Any]] = (LEFT,)


class TextSource(Base):
    """A data source of some text."""

    info: ClassVar = PluginInfo("text-source")
    payload: ClassVar[str] = "text"
    accept: ClassVar[str] = "text/plain"
    scheme = "http"
    path = "/text"
    interval_s = 0.0
    extractors: Sequence[Extractor] = ()

    def authority(self, endpoint: Endpoint) -> str:
        return endpoint.key

    def tls(self, endpoint: Endpoint) -> None:
        return None

    def bind(self, extractors: Sequence[Extractor]) -> None:
        self.extractors = extractors


class TextExtractor(Base):
    """Reads that text."""

    info: ClassVar = PluginInfo("text-extractor")
    expects: ClassVar[str] = "text"
    produces: Sequence[DataKey[Any]] = (DataKey("Text", "text-extractor"),)

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        return lambda body: Measurements()


class Nowhere(Base):
    """A discovery without endpoints."""

    info: ClassVar = PluginInfo("nowhere")

    def load(self) -> DiscoveredSet:
        return DiscoveredSet([], [])

    def poll(self) -> DiscoveredSet | None:
        return None


class Watcher(Base):
    """Observes everything there is to observe."""

    info: ClassVar = PluginInfo("watcher")

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None: ...

    def on_first_byte(self, request: InferenceRequest) -> None: ...

    def on_response_end(self, request: InferenceRequest, summary: Any) -> None: ...

    def on_endpoint_added(self, endpoint: Endpoint) -> None: ...

    def on_endpoint_removed(self, endpoint: Endpoint) -> None: ...


TEST_PLUGINS = (
    AllFilter, FilterAndScorer, AlphaFilter, FussyFilter, PairFilter, ManyHandler, LeftProducer,
    RightProducer, OddProducer, RoundProducer, SelfProducer, EarlyReader, LeftFilter, TextSource,
    TextExtractor, Nowhere, Watcher,
)  # fmt: skip

TEST_REGISTRY = REGISTRY.extended({p.info.type: f"{__name__}:{p.__name__}" for p in TEST_PLUGINS})
