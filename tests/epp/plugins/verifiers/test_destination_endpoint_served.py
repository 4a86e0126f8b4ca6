"""destination-endpoint-served-verifier: the client is told who served it."""

from tests.support.request_path import Rig, response, set_headers

HEADER = "x-conformance-test-served-endpoint"


def told(served: str) -> bytes | None:
    """The header of a response whose proxy says so."""
    exchange, _ = Rig("- type: destination-endpoint-served-verifier\n").ask()
    return set_headers(exchange.on_response_headers(response(served=served))).get(HEADER)


def test_the_served_endpoint_is_told():
    assert told("10.0.0.2:8000") == b"10.0.0.2:8000"


def test_nothing_is_told_when_the_proxy_does_not_say():
    assert told("") is None
