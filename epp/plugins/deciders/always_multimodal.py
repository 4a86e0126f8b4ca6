"""Give a request with images, audio or video a stage of its own, and no other."""

from __future__ import annotations

from typing import ClassVar, Final

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest, MediaKind

ENCODED: Final = frozenset({MediaKind.IMAGE, MediaKind.AUDIO, MediaKind.VIDEO})
"""What an encoder works on; files are for the model server to read."""


class AlwaysMultimodalDecider:
    """Says yes to a prompt with something to encode."""

    info: ClassVar = PluginInfo("always-disagg-multimodal-decider")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def wants_stage(self, request: InferenceRequest, endpoint: Endpoint | None) -> bool:
        """Whether the prompt has an image, an audio clip or a video."""
        media = request.parsed.media
        return media is not None and any(medium.kind in ENCODED for medium in media)
