"""Fetch each endpoint's list of models, as OpenAI-compatible servers keep it at /v1/models.

The list changes when adapters are loaded or unloaded, so it is fetched once a second at most. It is asked of
the port that serves requests.
"""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, Stability, TypedName
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.plugins.http_source import HttpSource, HttpSourceParams


class ModelsSourceParams(HttpSourceParams, frozen=True):
    """Parameters of ``models-data-source``."""

    path: str = "/v1/models"
    """Path of the list."""


class ModelsSource(HttpSource):
    """A source of model lists."""

    info: ClassVar[PluginInfo] = PluginInfo("models-data-source", ModelsSourceParams, Stability.BETA)
    payload: ClassVar[str] = "models-list"
    accept: ClassVar[str] = "application/json"
    min_interval_s: ClassVar[float] = 1.0

    def __init__(self, name: TypedName, params: ModelsSourceParams, handle: Handle) -> None:
        super().__init__(name, params, params.path)

    def authority(self, endpoint: Endpoint) -> str:
        """The endpoint's own address."""
        return endpoint.key
