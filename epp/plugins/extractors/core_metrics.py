"""Read load and capacity out of a model server's Prometheus text, whatever its engine calls them.

The engine of an endpoint is named by a label of it, else it is ``defaultEngine``; a label that names an
engine nobody mapped is treated as the default and said once. A mapping has one series spec per measurement;
what an engine has no series for is not measured.

Load series (queue, running, KV usage) that the mapping names and the text lacks are reported as missing.
LoRA and cache series may be absent: servers show them only with the feature on. A LoRA series that was there
and is gone means that the server restarted without adapters. Values that cannot be true (negative, not
finite) count as absent; KV usage above 1 counts as 1.

Custom metrics of a mapping become attributes of its endpoints, under the name of this extractor. A series
that a page lacks takes the attribute away: an old value would pass for a present one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from dataplane.errors import ConfigError, did_you_mean
from dataplane.observability.series import Series, SeriesSpec
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from dataplane.plugin.state import listing
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.data_layer import Measurements
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle

log = logging.getLogger(__name__)

ENGINE_LABEL: Final = "llm-d.ai/engine-type"
LEGACY_ENGINE_LABEL: Final = "inference.networking.k8s.io/engine-type"

MAX_ADAPTERS: Final = 1024
"""Adapter names taken from one label."""

MAX_CUSTOM_METRICS: Final = 64
"""Custom metrics of one engine."""

MAX_COUNT: Final = 1 << 31
"""Larger block sizes and counts are not believed."""


class CustomMetric(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """A series for plugins that score by an attribute of the endpoint."""

    attribute_key: str
    """Name of the attribute, as endpoint-attribute plugins are told it."""
    metric_spec: str
    """The series, as a spec."""


class EngineConfig(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True, kw_only=True):
    """Where one engine's text says what; a spec is ``name`` or ``name{label=value,...}``, empty = nowhere."""

    name: str
    """Engine type as endpoint labels spell it; a built-in name replaces the built-in mapping."""
    queued_requests_spec: str = ""
    """Requests waiting for a place in the batch."""
    running_requests_spec: str = ""
    """Requests in the batch."""
    kv_usage_spec: str = ""
    """Share of the KV cache in use, 0 to 1."""
    lora_spec: str = ""
    """Info series with labels running_lora_adapters, waiting_lora_adapters, max_lora; value = timestamp."""
    cache_info_spec: str = ""
    """Info series that has block size and number of blocks as labels."""
    cache_block_size_label_name: str = ""
    """Label of the cache info series with the tokens per block."""
    cache_num_blocks_label_name: str = ""
    """Label of the cache info series with the number of blocks."""
    cache_block_size_spec: str = ""
    """Series whose value is the tokens per block; instead of a cache info series."""
    cache_num_blocks_spec: str = ""
    """Series whose value is the number of blocks; instead of a cache info series."""
    custom_metrics: tuple[CustomMetric, ...] = ()
    """Series that become attributes of the endpoints, each with `attributeKey` and `metricSpec`."""


class CoreMetricsExtractorParams(PluginParams, frozen=True):
    """Parameters of ``core-metrics-extractor``."""

    engine_label_key: str = ENGINE_LABEL
    """Endpoint label that names the engine. The default has a legacy spelling that is understood as well."""
    default_engine: str = "vllm"
    """Engine of endpoints without the label."""
    engine_configs: tuple[EngineConfig, ...] = ()
    """Mappings that add to or replace the built-in ones."""


BUILTIN_ENGINES: Final = (
    EngineConfig(
        name="vllm",
        queued_requests_spec="vllm:num_requests_waiting",
        running_requests_spec="vllm:num_requests_running",
        kv_usage_spec="vllm:kv_cache_usage_perc",
        lora_spec="vllm:lora_requests_info",
        cache_info_spec="vllm:cache_config_info",
        cache_block_size_label_name="block_size",
        cache_num_blocks_label_name="num_gpu_blocks",
    ),
    EngineConfig(
        name="sglang",
        queued_requests_spec="sglang:num_queue_reqs",
        running_requests_spec="sglang:num_running_reqs",
        kv_usage_spec="sglang:token_usage",
        cache_info_spec="sglang:cache_config_info",
        cache_block_size_label_name="page_size",
        cache_num_blocks_label_name="num_pages",
    ),
    EngineConfig(
        name="trtllm-serve",
        queued_requests_spec="trtllm_num_requests_waiting",
        running_requests_spec="trtllm_num_requests_running",
        kv_usage_spec="trtllm_kv_cache_utilization",
        cache_block_size_spec="trtllm_kv_cache_tokens_per_block",
        cache_num_blocks_spec="trtllm_kv_cache_max_blocks",
    ),
    EngineConfig(
        name="triton-tensorrt-llm",
        queued_requests_spec="nv_trt_llm_request_metrics{request_type=waiting}",
        running_requests_spec="nv_trt_llm_request_metrics{request_type=scheduled}",
        kv_usage_spec="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
        cache_block_size_spec="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
        cache_num_blocks_spec="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
    ),
    # Triton counts executions, which only rise, and has no gauge of running requests: none is mapped.
    EngineConfig(name="triton", queued_requests_spec="nv_inference_pending_request_count"),
)


class CoreMetricsExtractor:
    """Compiles one reader per endpoint from its engine's mapping."""

    info: ClassVar[PluginInfo] = PluginInfo(
        "core-metrics-extractor", CoreMetricsExtractorParams, Stability.BETA
    )
    expects: ClassVar[str] = "prometheus-text"

    def __init__(self, name: TypedName, params: CoreMetricsExtractorParams, handle: Handle) -> None:
        self.name = name
        self._label_key = params.engine_label_key
        self._default = params.default_engine
        self._engines = {engine.name: engine for engine in BUILTIN_ENGINES}
        self._unmapped: set[str] = set()
        custom = dict.fromkeys(m.attribute_key for e in params.engine_configs for m in e.custom_metrics)
        own: list[DataKey[float]] = [DataKey(key, name.name, float) for key in custom]
        self.produces: Sequence[DataKey[Any]] = (ENGINE_METRICS, *own)
        for index, engine in enumerate(params.engine_configs):
            _check(engine, f"engineConfigs[{index}]")
            self._engines[engine.name] = engine
        if self._default not in self._engines:
            hint = did_you_mean(self._default, self._engines)
            known = ", ".join(sorted(self._engines))
            raise ConfigError(
                f"no mapping for engine {self._default!r}{hint}; use {known} or add it to engineConfigs",
                path="defaultEngine",
            )

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        """A reader for this endpoint's engine; it remembers positions, so it serves one endpoint only."""
        return EngineReader(self._engines[self._engine_of(endpoint)], self.name.name).read

    def dump_state(self) -> dict[str, Any]:
        """Engines that are known, and names of engines that endpoints have and nobody mapped."""
        return {
            "defaultEngine": self._default,
            "engines": sorted(self._engines),
            **listing("unmapped", sorted(self._unmapped), len(self._unmapped)),
        }

    def _engine_of(self, endpoint: Endpoint) -> str:
        labels = endpoint.spec.labels
        engine = labels.get(self._label_key)
        if engine is None and self._label_key == ENGINE_LABEL:
            engine = labels.get(LEGACY_ENGINE_LABEL)
        if engine is None:
            return self._default
        if engine in self._engines:
            return engine
        if len(self._unmapped) < MAX_ADAPTERS and engine not in self._unmapped:
            self._unmapped.add(engine)
            log.warning(
                "endpoint %s: no mapping for engine %r%s; it is read as %s. Add it to engineConfigs of %s",
                endpoint.spec.id, engine, did_you_mean(engine, self._engines), self._default, self.name,
            )  # fmt: skip
        return self._default


class EngineReader:
    """Reads successive pages of one endpoint."""

    __slots__ = (
        "_adapters",
        "_by_labels",
        "_by_value",
        "_config",
        "_custom",
        "_info",
        "_load",
        "_lora",
        "_lora_labels",
    )

    def __init__(self, config: EngineConfig, producer: str) -> None:
        self._config = config
        load = {
            "waiting": config.queued_requests_spec,
            "running": config.running_requests_spec,
            "kv_usage": config.kv_usage_spec,
        }
        self._load = [(field, spec, _series(spec)) for field, spec in load.items() if spec]
        self._by_value = [
            (field, _series(spec, optional=True))
            for field, spec in (
                ("block_size", config.cache_block_size_spec),
                ("num_blocks", config.cache_num_blocks_spec),
            )
            if spec
        ]
        self._custom: list[tuple[DataKey[float], str, Series]] = [
            (DataKey(metric.attribute_key, producer, float), metric.metric_spec, _series(metric.metric_spec))
            for metric in config.custom_metrics
        ]
        self._info = _series(config.cache_info_spec, optional=True) if config.cache_info_spec else None
        self._by_labels: tuple[Mapping[str, str], int | None, int | None] = ({}, None, None)
        """Labels of the cache info series read last and what they say."""
        self._lora = _series(config.lora_spec, optional=True, by_value=True) if config.lora_spec else None
        self._lora_labels: Mapping[str, str] | None = None
        self._adapters: tuple[frozenset[str], frozenset[str], int | None] = (frozenset(), frozenset(), None)

    def read(self, page: bytes) -> Measurements:
        """What the page says."""
        found = Measurements()
        missing: dict[str, str] | None = None
        for field, spec, series in self._load:
            value = series.read(page)
            if value is None or value < 0:
                missing = missing or {}
                missing[field] = spec
            else:
                setattr(found, field, min(value, 1.0) if field == "kv_usage" else value)
        if self._custom:
            found.attributes = attributes = {key: series.read(page) for key, _, series in self._custom}
            absent = {str(key): spec for key, spec, _ in self._custom if attributes[key] is None}
            missing = {**(missing or {}), **absent} or None
        found.missing = missing
        for field, series in self._by_value:
            setattr(found, field, _count(series.read(page)))
        if self._info is not None and self._info.read(page) is not None:
            self._read_cache_info(found, self._info.labels)
        if self._lora is not None:
            self._read_lora(found, self._lora, page)
        return found

    def _read_cache_info(self, found: Measurements, labels: Mapping[str, str]) -> None:
        if labels is not self._by_labels[0]:
            config = self._config
            block_size = _count_text(labels.get(config.cache_block_size_label_name, ""))
            num_blocks = _count_text(labels.get(config.cache_num_blocks_label_name, ""))
            self._by_labels = (labels, block_size, num_blocks)
        _, block_size, num_blocks = self._by_labels
        if block_size is not None:
            found.block_size = block_size
        if num_blocks is not None:
            found.num_blocks = num_blocks

    def _read_lora(self, found: Measurements, lora: Series, page: bytes) -> None:
        if lora.read(page) is None:
            loaded = found.waiting is not None or found.running is not None
            if loaded and self._lora_labels is not None and not lora.skipped:
                self._lora_labels = None
                found.active_models = found.waiting_models = frozenset()
            return
        labels = lora.labels
        if labels is not self._lora_labels:
            self._lora_labels = labels
            self._adapters = (
                _names(labels.get("running_lora_adapters", "")),
                _names(labels.get("waiting_lora_adapters", "")),
                _count_text(labels.get("max_lora", "")),
            )
        found.active_models, found.waiting_models, found.max_active_models = self._adapters


def _series(spec: str, *, optional: bool = False, by_value: bool = False) -> Series:
    return Series(SeriesSpec.parse(spec), optional=optional, newest_by_value=by_value)


def _check(engine: EngineConfig, path: str) -> None:
    """``ConfigError`` for a mapping that cannot be right."""
    if not engine.name:
        raise ConfigError("is empty; it is the engine type as endpoint labels spell it", path=f"{path}.name")
    _check_custom(engine.custom_metrics, f"{path}.customMetrics")
    specs = [field for field in engine.__struct_encode_fields__ if field.endswith("Spec")]
    values = msgspec.to_builtins(engine)
    for field in specs:
        if values[field]:
            try:
                SeriesSpec.parse(values[field])
            except ValueError as error:
                raise ConfigError(str(error), path=f"{path}.{field}") from error
    if not engine.custom_metrics and not any(values[field] for field in specs):
        raise ConfigError("names no series; give at least queuedRequestsSpec", path=path)


def _check_custom(metrics: Sequence[CustomMetric], path: str) -> None:
    if len(metrics) > MAX_CUSTOM_METRICS:
        raise ConfigError(
            f"has {len(metrics)} metrics, more than the {MAX_CUSTOM_METRICS} allowed", path=path
        )
    keys = [metric.attribute_key for metric in metrics]
    for index, metric in enumerate(metrics):
        place = f"{path}[{index}]"
        if not metric.attribute_key or "/" in metric.attribute_key:
            raise ConfigError(
                f"{metric.attribute_key!r} is not the name of an attribute; give a name without /",
                path=f"{place}.attributeKey",
            )
        if metric.attribute_key in keys[:index]:
            raise ConfigError(f"{metric.attribute_key!r} is there twice", path=f"{place}.attributeKey")
        try:
            SeriesSpec.parse(metric.metric_spec)
        except ValueError as error:
            raise ConfigError(str(error), path=f"{place}.metricSpec") from error


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 < value < MAX_COUNT else None


def _count_text(text: str) -> int | None:
    """Engines write ``None`` for what they do not know yet."""
    return _count(int(text)) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _names(text: str) -> frozenset[str]:
    names = (name.strip() for name in text.split(",", MAX_ADAPTERS)[:MAX_ADAPTERS])
    return frozenset(name for name in names if name)
