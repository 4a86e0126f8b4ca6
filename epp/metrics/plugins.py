"""Metrics whose numbers single plugins keep: declared here once, read from the plugins when asked for.

The plugins change with the configuration, the declarations do not, so that a dashboard finds its metrics
whatever is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from dataplane.observability.exposition import MetricSet
from dataplane.observability.numbers import Histogram, label_value
from epp.interfaces.numbers import Numbered
from epp.metrics.catalog import HIT_RATIO_BOUNDS, OWN_PREFIX, PLUGIN_LABELS, PREFIX


class PluginMetric(NamedTuple):
    """One metric; its labels come after the plugin's name and type."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    prefix: str = PREFIX


PLUGIN_METRICS: Final = (
    PluginMetric(
        "disaggregatedset_strict_header_no_match_total",
        "counter",
        "Requests whose header named a label value that no candidate has.",
        ("selector",),
    ),
    PluginMetric(
        "disaggregatedset_revision_gating_share",
        "gauge",
        "Share of requests that a revision gets; 0 while it lacks a required role.",
        ("mode", "revision"),
    ),
    PluginMetric(
        "encoder_cache_queries_total",
        "counter",
        "Images, clips and videos that were looked up.",
        ("modality",),
    ),
    PluginMetric(
        "encoder_cache_hits_total",
        "counter",
        "Of these, those that the chosen endpoint is believed to have encoded before.",
        ("pod", "modality"),
    ),
    PluginMetric(
        "encoder_cache_hit_ratio",
        "histogram",
        "Share of a request's media that the chosen endpoint is believed to have encoded before.",
        ("modality",),
        HIT_RATIO_BOUNDS,
    ),
    PluginMetric(
        "prompt_renderings_total",
        "counter",
        "Prompts that a server was to render, by outcome.",
        ("outcome",),
        prefix=OWN_PREFIX,
    ),
)


class PluginNumbers:
    """Exposes what the plugins of the current configuration keep."""

    def __init__(self, metrics: MetricSet) -> None:
        self._plugins: Sequence[Numbered] = ()
        for metric in PLUGIN_METRICS:
            metrics.computed(
                metric.prefix + metric.name,
                metric.help,
                (*PLUGIN_LABELS, *metric.labels),
                partial(self._series, metric.name),
                kind=metric.kind,
                bounds=metric.bounds,
            )

    def watch(self, plugins: Iterable[object]) -> None:
        """From now on these plugins, as far as they keep numbers."""
        self._plugins = [plugin for plugin in plugins if isinstance(plugin, Numbered)]

    def _series(self, metric: str) -> Iterator[tuple[Sequence[str], float | Histogram]]:
        for plugin in self._plugins:
            for labels, value in plugin.metric_series(metric):
                yield (plugin.name.name, plugin.name.type, *map(label_value, labels)), value
