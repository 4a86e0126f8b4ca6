"""What plugins tell Envoy when a response has ended, as dynamic metadata.

A plugin that fails costs its own values, never the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from dataplane.extproc.events import MetadataValues
from dataplane.payload.token_usage import Usage
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseReporter
from epp.plugin_failures import PluginFailures
from epp.scheduling.profile import PluginTimings, recorder

REPORTER_POINT: Final = "ResponseReporter"


class ResponseReporting:
    """Asks the reporters of one configuration."""

    def __init__(
        self,
        reporters: Sequence[ResponseReporter],
        timings: PluginTimings | None,
        failures: PluginFailures,
    ) -> None:
        self._reporters = [(plugin, recorder(timings, REPORTER_POINT, plugin)) for plugin in reporters]
        self._failures = failures

    def report(self, request: InferenceRequest, usage: Usage | None) -> MetadataValues | None:
        """What all of them say, later ones over earlier ones; None when there is nothing."""
        found: dict[str, dict[str, Any]] = {}
        for plugin, record in self._reporters:
            start = perf_counter()
            try:
                for namespace, values in (plugin.report_response(request, usage) or {}).items():
                    found.setdefault(namespace, {}).update(values)
            except Exception as error:  # noqa: BLE001 - a plugin's defect must not cost the client its response
                cost = "so the response ends without its values"
                self._failures.note(REPORTER_POINT, plugin, cost, error)
            record(perf_counter() - start)
        return found or None
