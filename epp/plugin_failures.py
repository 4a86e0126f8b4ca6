"""Plugins whose failure costs what they would have added, and never the request or its response.

Each failure is counted by plugin; the log has the first one, then one every while with how many it left out.
"""

from __future__ import annotations

import logging
from typing import Final

from dataplane.clock import Clock
from dataplane.plugin.base import TypedName
from epp.metrics import EppMetrics

log = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 10.0
"""A plugin that fails at an extension point is logged this often at most."""


class PluginFailures:
    """Counts and logs the failures of one configuration's plugins."""

    def __init__(self, metrics: EppMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._log: dict[tuple[str, str], tuple[float, int]] = {}
        """By plugin and extension point: when it is logged next, and what was not. Bounded by the plugins."""

    def note(self, point: str, plugin: object, cost: str, error: Exception) -> None:
        """``plugin`` failed at the extension point ``point``; ``cost`` says in a clause what that means."""
        name: TypedName = plugin.name  # type: ignore[attr-defined]  # every plugin has one
        self._metrics.plugin_failed(point, name)
        key = (name.name, point)
        log_at, unlogged = self._log.get(key, (float("-inf"), 0))
        now = self._clock()
        if now < log_at:
            self._log[key] = (log_at, unlogged + 1)
            return
        self._log[key] = (now + LOG_INTERVAL_S, 0)
        log.error(
            "plugin '%s' failed as %s, %s; %d failures not logged",
            name.name,
            point,
            cost,
            unlogged,
            exc_info=error,
        )
