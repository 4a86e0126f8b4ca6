"""``by-field-filter``: keeps the models that a field of the body names, by their name or by an attribute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel
from ipp.plugins.body_fields import matching


class ByFieldFilterParams(PluginParams, frozen=True, kw_only=True):
    """Only the field is required."""

    field_name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    """Member of the body's object. A request without it, or with an empty one, keeps all models."""
    by_field: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Attribute of models that must be equal to it; empty = their name."""


class ByFieldFilter:
    """A model without the attribute is never equal; a field that is no text keeps none."""

    info: ClassVar = PluginInfo("by-field-filter", ByFieldFilterParams)

    def __init__(self, name: TypedName, params: ByFieldFilterParams, _: Handle) -> None:
        self.name = name
        self._field = params.field_name
        self._attribute = params.by_field

    def filter_models(
        self, request: RequestMessage, candidates: Sequence[ServedModel]
    ) -> Sequence[ServedModel]:
        """Those that are equal."""
        return matching(request, candidates, self._field, self._of)

    def _of(self, model: ServedModel) -> str | None:
        return model.attributes.get(self._attribute) if self._attribute else model.name
