"""``model-group-name-filter``: ``auto`` stands for every model, ``auto/GROUP`` for those of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.plugins.body_fields import asked_for

AUTO: Final = "auto"
OF_GROUP: Final = "auto/"


class ModelGroupNameFilter:
    """Every other name is that of one model; a request without a name keeps all."""

    info: ClassVar = PluginInfo("model-group-name-filter", PluginParams)

    def __init__(self, name: TypedName, _: PluginParams, __: Handle) -> None:
        self.name = name

    def filter_models(
        self, request: RequestMessage, candidates: Sequence[ServedModel]
    ) -> Sequence[ServedModel]:
        """Those the name stands for; none for a model that is no text."""
        wanted = asked_for(request, "model")
        if wanted is None:
            return ()
        if wanted in {"", AUTO}:
            return candidates
        if wanted.startswith(OF_GROUP):
            group = wanted.removeprefix(OF_GROUP)
            return [model for model in candidates if group in model.groups]
        return [model for model in candidates if model.name == wanted]
