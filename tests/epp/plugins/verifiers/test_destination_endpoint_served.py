"""destination-endpoint-served-verifier: the client is told who served it."""

from typing import Any

from dataplane.extproc.exchange import HttpResponse
from dataplane.headers import LB_NAMESPACE, Headers
from tests.support.request_path import Rig, response, set_headers

HEADER = "x-conformance-test-served-endpoint"


class Unserved:
    """Metadata of the load balancer that does not say who served."""

    def namespace(self, name: str) -> dict[str, Any] | None:
        return {"something": "else"} if name == LB_NAMESPACE else None


def told(served: str) -> bytes | None:
    """The header of a response whose proxy says so."""
    exchange, _ = Rig("- type: destination-endpoint-served-verifier\n").ask()
    return set_headers(exchange.on_response_headers(response(served=served))).get(HEADER)


def test_the_served_endpoint_is_told():
    assert told("10.0.0.2:8000") == b"10.0.0.2:8000"


def test_what_the_proxy_does_not_say_is_named():
    assert told("") == b"fail: missing envoy lb metadata"
    exchange, _ = Rig("- type: destination-endpoint-served-verifier\n").ask()
    silent = HttpResponse(Headers.of([(":status", "200")]), 200, False, Unserved())
    answer = exchange.on_response_headers(silent)
    assert set_headers(answer)[HEADER] == b"fail: missing destination endpoint served metadata"
