"""The metrics of a payload processor, under the names of llm-d's where there are such."""

from __future__ import annotations

from typing import Final

from dataplane.errors import RequestError
from dataplane.observability.exposition import MetricSet
from dataplane.observability.numbers import Histogram
from dataplane.plugin.base import TypedName
from ipp.model_metrics import ModelMetrics

PREFIX: Final = "ipp_"
OWN_PREFIX: Final = "pointsman_ipp_"
PLUGIN_BOUNDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
PROCESSING_BOUNDS: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)


class IppMetrics:
    """Counted by the handler and by plugins."""

    def __init__(self, version: str = "", revision: str = "") -> None:
        self.version = version
        self.refused = 0
        """Requests that were answered here with an error."""
        self.failed = 0
        """Exchanges that ended with a status of 500 or more, whoever said so, as far as answers are shown."""
        self.numbers = MetricSet()
        declare = self.numbers
        declare.computed(
            PREFIX + "info",
            "Build of the processor.",
            ("commit", "build_ref"),
            lambda: [((revision, version), 1)],
        )
        self.success = declare.counter(PREFIX + "success_total", "Requests processed and sent on.").child()
        self.field_not_found = declare.counter(
            PREFIX + "body_field_not_found_total",
            "Requests without a body field that was looked for.",
            ("field",),
        )
        self.field_empty = declare.counter(
            PREFIX + "body_field_empty_total", "Requests in which such a field was empty.", ("field",)
        )
        self._plugins = declare.histogram(
            PREFIX + "plugin_duration_seconds",
            "Time a plugin took.",
            PLUGIN_BOUNDS,
            ("extension_point", "plugin_type", "plugin_name"),
        )
        self.processing = declare.histogram(
            OWN_PREFIX + "request_processing_seconds",
            "Time from the complete request to its decision.",
            PROCESSING_BOUNDS,
        ).child()
        self._rejections = declare.counter(
            OWN_PREFIX + "requests_rejected_total", "Requests answered here with an error.", ("code",)
        )
        self.profiles = declare.counter(
            OWN_PREFIX + "requests_total", "Requests by the profile that processed them.", ("profile",)
        )
        self.token_counts = declare.counter(
            OWN_PREFIX + "token_counts_total",
            "Prompts whose tokens somebody needed to know, by what became of having them counted.",
            ("outcome",),
        )
        self.of_models = ModelMetrics(declare)

    def plugin(self, extension_point: str, name: TypedName) -> Histogram:
        """Durations of one plugin; bound once per configuration."""
        return self._plugins.child(extension_point, name.type, name.name)

    def rejected(self, error: RequestError) -> None:
        """Count a request that is answered here."""
        self._rejections.child(error.code).inc()
        self.refused += 1
        self.failed += error.status >= 500

    def answer_refused(self, error: RequestError) -> None:
        """Count an answer that is replaced by an error here; its request was counted when it was sent on."""
        self.failed += error.status >= 500
