"""Leave the utilization of its busiest GPU on an endpoint.

A node's exporter tells of all its GPUs; the highest utilization counts. Values that are no percentage, as
DCGM writes for GPUs it cannot read, count as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import GPU_UTILIZATION
from epp.interfaces.data_layer import Measurements
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.plugins.http_source import PROMETHEUS_TEXT

SERIES: Final = "DCGM_FI_DEV_GPU_UTIL"
MAX_GPUS: Final = 1024
"""Series of one text that are looked at; later ones are ignored."""

_SAMPLE: Final = re.compile(
    rb"^DCGM_FI_DEV_GPU_UTIL(?:\{[^\n]*\})?[ \t]+([0-9.eE+-]{1,32})(?![^ \t\r\n])", re.MULTILINE
)


class DcgmExtractor:
    """Leaves GPUUtilization on endpoints."""

    info: ClassVar[PluginInfo] = PluginInfo("dcgm-extractor", PluginParams, Stability.ALPHA)
    expects: ClassVar[str] = PROMETHEUS_TEXT

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._key = GPU_UTILIZATION.by(name.name)
        self.produces: Sequence[DataKey[Any]] = (self._key,)

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        """A reader for any endpoint: nothing is remembered."""
        return self._read

    def _read(self, page: bytes) -> Measurements:
        samples = (_percentage(match[1]) for match in islice(_SAMPLE.finditer(page), MAX_GPUS))
        busiest = max((value for value in samples if value is not None), default=None)
        if busiest is None:
            return Measurements(attributes={self._key: None}, missing={str(self._key): SERIES})
        return Measurements(attributes={self._key: busiest / 100})


def _percentage(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 100 else None
