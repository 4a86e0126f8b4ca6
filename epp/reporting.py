"""What plugins tell Envoy when a response has ended, as dynamic metadata.

A plugin that fails costs its own values, never the response; it is logged once in a while.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from dataplane.clock import Clock
from dataplane.extproc.events import MetadataValues
from epp.interfaces.request import InferenceRequest, Usage
from epp.interfaces.request_control import ResponseReporter
from epp.scheduling.profile import PluginTimings, recorder

log = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 10.0
"""Failures are logged this often at most."""


class ResponseReporting:
    """Asks the reporters of one configuration."""

    def __init__(
        self, reporters: Sequence[ResponseReporter], timings: PluginTimings | None, clock: Clock
    ) -> None:
        self._reporters = [(plugin, recorder(timings, "ResponseReporter", plugin)) for plugin in reporters]
        self._clock = clock
        self._log_at = float("-inf")
        self._unlogged = 0

    def report(self, request: InferenceRequest, usage: Usage | None) -> MetadataValues | None:
        """What all of them say, later ones over earlier ones; None when there is nothing."""
        found: dict[str, dict[str, Any]] = {}
        for plugin, record in self._reporters:
            start = perf_counter()
            try:
                for namespace, values in (plugin.report_response(request, usage) or {}).items():
                    found.setdefault(namespace, {}).update(values)
            except Exception as error:  # noqa: BLE001 - a plugin's defect must not cost the client its response
                self._note_failure(plugin, error)
            record(perf_counter() - start)
        return found or None

    def _note_failure(self, plugin: ResponseReporter, error: Exception) -> None:
        now = self._clock()
        if now < self._log_at:
            self._unlogged += 1
            return
        log.error(
            "plugin '%s' failed to report on a response, which ends without its values; "
            "%d failures not logged",
            plugin.name.name,  # type: ignore[attr-defined]  # every plugin has one
            self._unlogged,
            exc_info=error,
        )
        self._log_at, self._unlogged = now + LOG_INTERVAL_S, 0
