"""Tell the client which endpoint served it, as the proxy reports it; for conformance tests."""

from __future__ import annotations

from typing import ClassVar

from dataplane.headers import TEST_SERVED
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseHead


class DestinationEndpointServedVerifier:
    """Copies the served endpoint from the proxy's metadata to a response header."""

    info: ClassVar = PluginInfo("destination-endpoint-served-verifier")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def process_response_headers(
        self, request: InferenceRequest, response: ResponseHead, set_headers: dict[str, str]
    ) -> None:
        """Set the header if the proxy says who served."""
        if response.served:
            set_headers[TEST_SERVED] = response.served
