"""``model-name-filter``: keeps the model that the request names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.plugins.body_fields import matching


class ModelNameFilter:
    """A request that names no model keeps all."""

    info: ClassVar = PluginInfo("model-name-filter", PluginParams)

    def __init__(self, name: TypedName, _: PluginParams, __: Handle) -> None:
        self.name = name

    def filter_models(
        self, request: RequestMessage, candidates: Sequence[ServedModel]
    ) -> Sequence[ServedModel]:
        """The one of that name."""
        return matching(request, candidates, "model", lambda model: model.name)
