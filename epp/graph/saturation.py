"""Which plugin says how full the pool is: the one that is named, else one that can know.

``utilization-detector`` is the default. Where nothing measures the model servers it would take every one of
them for full; there the default is ``concurrency-detector``, which needs no metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataplane.config.epp import FlowControlSpec
from dataplane.plugin.instances import Instances
from epp.interfaces.attributes import ENGINE_METRICS
from epp.interfaces.data_layer import Extractor
from epp.interfaces.saturation import SaturationDetector

MEASURED_DETECTOR: Final = "utilization-detector"
COUNTING_DETECTOR: Final = "concurrency-detector"


def find_detector(
    flow: FlowControlSpec | None, measuring: Sequence[Extractor], instances: Instances
) -> SaturationDetector | None:
    """The detector; None after noting why there is none. ``measuring``: extractors that are fed and read."""
    if flow is None or flow.saturation_detector is None:
        is_measured = any(ENGINE_METRICS in extractor.produces for extractor in measuring)
        found = instances.default(MEASURED_DETECTOR if is_measured else COUNTING_DETECTOR)
        return found if isinstance(found, SaturationDetector) else None
    name = flow.saturation_detector.plugin_ref
    path = "flowControl.saturationDetector.pluginRef"
    plugin = instances.lookup(name, path)
    if plugin is not None and not isinstance(plugin, SaturationDetector):
        instances.problem(f"the plugin '{name}' is not a saturation detector", path)
        return None
    return plugin
