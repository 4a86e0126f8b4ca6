"""Leave the models that a server lists on its endpoint.

A list that is no list of models is refused as a whole and the endpoint keeps the last one; entries without a
usable id are left out. An answer equal to the one before is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.attributes import SERVED_MODELS, ServedModel
from epp.interfaces.data_layer import Measurements, UnreadablePageError
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle

MAX_BYTES: Final = 1 << 20
"""Longest list that is read; reading stops the picker's other work meanwhile."""
MAX_MODELS: Final = 1000
"""Models of one endpoint that are kept; later ones are left out."""
MAX_TEXT: Final = 256
"""Characters of an id or another text that are kept."""


class _Entry(msgspec.Struct):
    id: str | None = None
    object: str | None = None
    created: float | None = None
    owned_by: str | None = None
    parent: str | None = None


class _List(msgspec.Struct):
    data: list[_Entry]


_DECODER: Final = msgspec.json.Decoder(_List)


class ModelsExtractor:
    """Leaves `/v1/models` on endpoints."""

    info: ClassVar[PluginInfo] = PluginInfo("models-data-extractor", PluginParams, Stability.BETA)
    expects: ClassVar[str] = "models-list"

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name
        self._key = SERVED_MODELS.by(name.name)
        self.produces: Sequence[DataKey[Any]] = (self._key,)

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        """A reader that remembers the last answer, so it serves one endpoint only."""
        key = self._key
        last: bytes | None = None
        models = Measurements()

        def read(body: bytes) -> Measurements:
            nonlocal last, models
            if body != last:
                found = Measurements(attributes={key: _models(body)})
                last, models = body, found
            return models

        return read


def _models(body: bytes) -> tuple[ServedModel, ...]:
    if len(body) > MAX_BYTES:
        raise UnreadablePageError(f"the list of models is longer than {MAX_BYTES} bytes")
    try:
        listed = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadablePageError(f"it is no list of models ({error})") from None
    usable = (entry for entry in listed.data if entry.id and len(entry.id) <= MAX_TEXT)
    return tuple(_model(entry) for entry, _ in zip(usable, range(MAX_MODELS), strict=False))


def _model(entry: _Entry) -> ServedModel:
    return ServedModel(
        id=entry.id or "",
        object=(entry.object or "")[:MAX_TEXT],
        created=int(entry.created or 0),
        owned_by=(entry.owned_by or "")[:MAX_TEXT],
        parent=(entry.parent or "")[:MAX_TEXT],
    )
