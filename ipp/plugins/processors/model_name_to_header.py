"""``model-name-to-header``: tells the client which model served it, streamed answers included."""

from __future__ import annotations

from typing import ClassVar

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.plugins.header_names import HeaderName, check_header_name, header_value


class ModelNameToHeaderParams(PluginParams, frozen=True, kw_only=True):
    """One field."""

    header_name: HeaderName = "X-Gateway-Model-Name"
    """The header of the response."""

    def __post_init__(self) -> None:
        check_header_name(self.header_name)


class ModelNameToHeader:
    """The model as the request was sent on with it; a request without one sets no header."""

    info: ClassVar = PluginInfo("model-name-to-header", ModelNameToHeaderParams, Stability.STABLE)

    def __init__(self, name: TypedName, params: ModelNameToHeaderParams, _: Handle) -> None:
        self.name = name
        self._header = params.header_name.lower()

    def process_response(self, request: RequestMessage, response: ResponseMessage) -> None:
        """Set the header."""
        if request.body and request.model:
            response.set_header(self._header, header_value(request.model))
