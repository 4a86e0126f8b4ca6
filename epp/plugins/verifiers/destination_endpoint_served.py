"""Tell the client which endpoint served it, as the proxy reports it; for conformance tests.

A proxy that does not report it fails the test, so the header says what is missing in its place.
"""

from __future__ import annotations

from typing import ClassVar, Final

from dataplane.headers import LB_NAMESPACE, TEST_SERVED
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseHead

NO_NAMESPACE: Final = "fail: missing envoy lb metadata"
NO_ENDPOINT: Final = "fail: missing destination endpoint served metadata"


class DestinationEndpointServedVerifier:
    """Copies the served endpoint from the proxy's metadata to a response header."""

    info: ClassVar = PluginInfo("destination-endpoint-served-verifier")

    def __init__(self, name: TypedName, params: PluginParams, handle: Handle) -> None:
        self.name = name

    def process_response_headers(
        self, request: InferenceRequest, response: ResponseHead, set_headers: dict[str, str]
    ) -> None:
        """Set the header to who served, or to what the proxy should have said."""
        if response.served:
            set_headers[TEST_SERVED] = response.served
        elif response.metadata is None or response.metadata.namespace(LB_NAMESPACE) is None:
            set_headers[TEST_SERVED] = NO_NAMESPACE
        else:
            set_headers[TEST_SERVED] = NO_ENDPOINT
