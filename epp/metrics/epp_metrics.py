"""All metrics of one picker, behind the few methods that a request's path calls.

Owned by the event loop's thread. Label values that clients choose are folded by ``LabelCap``; everything
that is looked up per request is kept by the raw values, but only for values that were not folded, so that
what is kept is bounded by the same caps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Final, Protocol

from dataplane.errors import RequestError
from dataplane.observability.exposition import Computed, MetricSet
from dataplane.observability.numbers import (
    MAX_SERIES,
    OTHER,
    Counter,
    Family,
    Histogram,
    LabelCap,
    label_value,
)
from dataplane.plugin.base import TypedName
from epp.interfaces.endpoint import Endpoint, EndpointTable
from epp.metrics import pool
from epp.metrics.catalog import (
    FIELD_STAGE,
    OWN_PREFIX,
    PLUGIN_LABELS,
    PREFIX,
    ProcessFamilies,
    RequestFamilies,
)
from epp.metrics.legacy import declare_twins
from epp.metrics.plugins import PluginNumbers
from epp.metrics.request import RequestMetrics
from epp.metrics.saturation import SaturationGauges
from epp.metrics.snapshot import Snapshot, take

BYTES_PER_TOKEN: Final = 4
"""How much prompt text a token of the approximate prefix index stands for."""

UNKNOWN_MODEL: Final = "unknown"
"""What decisions in stages are counted under when a request names no model."""

FOLD_EVERY: Final = 128
"""Decisions whose plugin durations are kept aside before they are counted."""


class PrefixIndex(Protocol):
    """A plugin that keeps a prefix index."""

    name: TypedName

    @property
    def indexed_blocks(self) -> int:
        """Blocks remembered."""
        ...


class Processor(Protocol):
    """What serves the ext_proc streams."""

    defects: int
    refused: int


class PluginTimings:
    """How long plugins take, and the whole decision.

    A decision times a dozen calls. Each duration is only appended to a list, which costs no Python call, and
    the lists are emptied into their histograms together, every ``FOLD_EVERY`` decisions and before
    ``/metrics``.
    """

    def __init__(self, family: Family[Histogram]) -> None:
        self._family = family
        self._pending: dict[int, tuple[list[float], Histogram]] = {}

    def recorder(self, point: str, plugin: object) -> Callable[[float], None]:
        """What to call with the seconds each call of ``plugin`` at the extension point ``point`` took."""
        name: TypedName = plugin.name  # type: ignore[attr-defined]  # every plugin has one
        return self.keep(self._family.child(point, name.type, name.name))

    def keep(self, histogram: Histogram) -> Callable[[float], None]:
        """What to call with each value, for a histogram that a decision observes a few times at most."""
        found = self._pending.get(id(histogram))
        if found is None:
            found = self._pending[id(histogram)] = ([], histogram)
        return found[0].append

    def fold(self) -> None:
        """Empty the lists into the histograms."""
        for pending, histogram in self._pending.values():
            if pending:
                histogram.observe_all(pending)
                pending.clear()


class EppMetrics:
    """The picker's metrics; also an ``EndpointObserver`` and the scraper's ``ErrorCounter``."""

    def __init__(
        self, table: EndpointTable, pool_name: str, *, stream_metrics: bool = False, legacy: bool = False
    ) -> None:
        self.numbers = MetricSet(self._fold_timings, {PREFIX: FIELD_STAGE})
        self._requests = RequestFamilies(self.numbers)
        self._process = ProcessFamilies(self.numbers, streams=stream_metrics)
        pool.declare(self.numbers, table, pool_name)
        self.plugins = PluginNumbers(self.numbers)
        self.saturation = SaturationGauges(self.numbers, table, pool_name)
        self.plugin_timings = PluginTimings(self._process.plugins)
        self._unfolded = 0
        self._models = LabelCap()
        self._targets = LabelCap()
        self._fairness = LabelCap()
        self._by_request: dict[tuple[str, str, str, int], RequestMetrics] = {}
        self._by_labels: dict[tuple[str, str, str, str], RequestMetrics] = {}
        self._attempts: dict[Endpoint, dict[str, Counter]] = {}
        keep = self.plugin_timings.keep
        self._scheduler = keep(self._process.scheduler.child())
        self._request_processing = keep(self._process.request_processing.child())
        self._response_processing = self._process.response_processing.child()
        self._indexes: Sequence[PrefixIndex] = ()
        self._hits: tuple[Histogram, Histogram] | None = None
        self.numbers.computed(
            PREFIX + "prefix_indexer_size",
            "Blocks in the prefix index.",
            PLUGIN_LABELS,
            lambda: [((index.name.name, index.name.type), index.indexed_blocks) for index in self._indexes],
        )
        build = version("pointsman")
        self.numbers.computed(
            PREFIX + "info",
            "Always 1; the labels say which build this is.",
            ("commit", "build_ref"),
            lambda: [(("", build), 1)],
        )
        if legacy:
            declare_twins(self.numbers)

    def for_request(self, model: str, target_model: str, fairness_id: str, priority: int) -> RequestMetrics:
        """The numbers of this kind of request."""
        key = (model, target_model, fairness_id, priority)
        found = self._by_request.get(key)
        return self._resolve(key) if found is None else found

    def scheduled(self, seconds: float, target_model: str, endpoint: Endpoint) -> None:
        """A decision took ``seconds`` and chose ``endpoint``."""
        self._scheduler(seconds)
        counters = self._attempts.get(endpoint)
        counter = counters.get(target_model) if counters is not None else None
        if counter is None:
            counter = self._attempt(target_model, endpoint)
        counter.value += 1
        self._decided()

    def decided_in_stages(
        self, handler: TypedName, target_model: str, decision: str, left_out: Sequence[str]
    ) -> None:
        """A profile handler of several stages decided; ``left_out`` are those that found no endpoint."""
        model = self._targets.fold(target_model) or UNKNOWN_MODEL
        self._process.disagg_decisions.child(handler.name, handler.type, model, decision).value += 1
        for stage in left_out:
            self._process.disagg_left_out.child(handler.name, handler.type, stage).value += 1

    def plugin_failed(self, point: str, plugin: TypedName) -> None:
        """An exception of a plugin at this extension point cost what it would have added."""
        self._process.plugin_failures.child(point, plugin.type, plugin.name).value += 1

    def model_rewritten(self, rewrite: str, model: str, target_model: str) -> None:
        """A rule of the model rewrite of this name has decided what a request for ``model`` is served by."""
        labels = (label_value(rewrite), self._models.fold(model), label_value(target_model))
        self._process.rewrites.child(*labels).value += 1

    def keep_models(self, models: Iterable[str], target_models: Iterable[str]) -> None:
        """Count these under their own names, however many others clients ask for."""
        self._models.keep(models)
        self._targets.keep(target_models)

    def schedule_failed(self, target_model: str) -> None:
        """A decision found no endpoint."""
        self._decided()
        model = self._targets.fold(target_model)
        self._process.attempts.child("failure", model, "", "", "").value += 1

    def _decided(self) -> None:
        self._unfolded += 1
        if self._unfolded >= FOLD_EVERY:
            self._fold_timings()

    def snapshot(self) -> Snapshot:
        """The totals at this moment."""
        self._fold_timings()
        return take(self._requests, self._process)

    def _fold_timings(self) -> None:
        self._unfolded = 0
        self.plugin_timings.fold()

    def processed_request(self, seconds: float) -> None:
        """From the complete request to the answer to the proxy."""
        self._request_processing(seconds)

    def processed_response(self, seconds: float) -> None:
        """Spent on the headers of a response."""
        self._response_processing.observe(seconds)

    def watch_prefix_indexes(self, indexes: Sequence[PrefixIndex]) -> None:
        """Expose the size of these indexes; matches are counted under the first one's name."""
        self._indexes = tuple(indexes)
        self._hits = None
        for index in self._indexes[:1]:
            labels = (index.name.name, index.name.type)
            self._hits = (self._process.hit_ratio.child(*labels), self._process.hit_bytes.child(*labels))

    def prefix_matched(self, matched_blocks: float, total_blocks: int, block_size_tokens: int) -> None:
        """A request was sent to an endpoint believed to hold so much of its prompt."""
        if self._hits is not None and total_blocks:
            ratio, size = self._hits
            ratio.observe(matched_blocks / total_blocks)
            size.observe(matched_blocks * block_size_tokens * BYTES_PER_TOKEN)

    def rejected(self, error: RequestError) -> None:
        """A request was refused before anything was known of it."""
        self.for_request("", "", "", 0).error(error.code)

    def watch_processor(self, processor: Processor) -> None:
        """Expose what goes wrong on its streams."""
        self.numbers.computed(
            OWN_PREFIX + "defects_total",
            "Exceptions in plugins and handlers, of which the log has the first of each second.",
            (),
            lambda: [((), processor.defects)],
            kind="counter",
        )
        self.numbers.computed(
            OWN_PREFIX + "malformed_streams_total",
            "ext_proc streams on which the proxy broke the protocol.",
            (),
            lambda: [((), processor.refused)],
            kind="counter",
        )

    def watch_spans(self, counts: Computed) -> None:
        """Expose what becomes of spans."""
        text = "Finished spans by outcome."
        self.numbers.computed(OWN_PREFIX + "spans_total", text, ("outcome",), counts, kind="counter")

    def stream_opened(self) -> None:
        """An ext_proc stream began. Nothing without ``stream_metrics``."""
        if self._process.streams is not None:
            self._process.streams.inflight.value += 1

    def stream_closed(self, code: str, seconds: float) -> None:
        """An ext_proc stream ended with the gRPC status ``code`` (``OK``, ``Canceled``, ...)."""
        streams = self._process.streams
        if streams is not None:
            streams.inflight.value -= 1
            streams.duration.observe(seconds)
            streams.total.child(code).value += 1

    def poll_error(self, source_type: str) -> None:
        """One scrape brought no body."""
        self._process.poll_errors.child(source_type).value += 1

    def extract_error(self, source_type: str, extractor_type: str) -> None:
        """One body lacked series it should have."""
        self._process.extract_errors.child(source_type, extractor_type).value += 1

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        """Its series begin with the first request."""

    def on_endpoint_removed(self, endpoint: Endpoint) -> None:
        """Its series end; others may take their place under the cap."""
        for target_model in self._attempts.pop(endpoint, ()):
            self._process.attempts.discard(*self._attempt_labels(target_model, endpoint))

    def _resolve(self, key: tuple[str, str, str, int]) -> RequestMetrics:
        """Fold the labels; remember the way there unless one was folded."""
        model, target_model, fairness_id, priority = key
        raw = (model, target_model, fairness_id, str(priority))
        labels = (
            self._models.fold(model),
            self._targets.fold(target_model),
            self._fairness.fold(fairness_id),
            raw[3],
        )
        found = self._by_labels.get(labels)
        if found is None:
            if len(self._by_labels) >= MAX_SERIES:
                labels = (OTHER, OTHER, OTHER, OTHER)
                found = self._by_labels.get(labels)
            if found is None:
                found = self._by_labels[labels] = RequestMetrics(self._requests, labels)
        if labels == raw:
            self._by_request[key] = found
        return found

    def _attempt(self, target_model: str, endpoint: Endpoint) -> Counter:
        labels = self._attempt_labels(target_model, endpoint)
        counter = self._process.attempts.child(*labels)
        if labels in self._process.attempts.children and labels[1] == target_model:
            self._attempts.setdefault(endpoint, {})[target_model] = counter
        return counter

    def _attempt_labels(self, target_model: str, endpoint: Endpoint) -> tuple[str, str, str, str, str]:
        spec = endpoint.spec
        return "success", self._targets.fold(target_model), spec.name, spec.namespace, str(spec.port)
