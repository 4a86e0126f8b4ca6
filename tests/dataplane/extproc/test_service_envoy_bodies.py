"""A real Envoy takes bodies that were changed, in every body mode and with a length that is right."""

import pytest

from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending
from tests.dataplane.extproc.gateway import ANSWER, DECISION, gateway
from tests.dataplane.extproc.vectors.envoy import ENVOY, LISTENERS, Message, post, post_chunked
from tests.support.exchanges import HoldingTransform

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is not installed"),
]

SEES_REQUEST_BODY = [
    name
    for name, listener in LISTENERS.items()
    if listener.request not in ("NONE", "STREAMED") or listener.nowait
]
SEES_RESPONSE_BODY = [name for name, listener in LISTENERS.items() if listener.response != "NONE"]
OLD = b'{"model":"a"}'
BODIES = [b"x", b'{"model":"another name"}', b"0123456789" * 20_000, b""]


def with_body(body: bytes) -> Proceed:
    return Proceed(DECISION.set_headers, DECISION.remove_headers, DECISION.metadata, True, body)


def is_framed(message: Message) -> bool:
    """Whether the message says where it ends, in one way: what follows is then never taken for its body."""
    length = message.headers.get("content-length")
    if length is None:
        return message.headers.get("transfer-encoding") == "chunked"
    return int(length) == len(message.body) and "transfer-encoding" not in message.headers


async def test_request_body_is_replaced_in_every_mode_that_shows_it(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in SEES_REQUEST_BODY:
            for body in BODIES:
                for request in (post("/echo", OLD), post_chunked("/echo", OLD[:5], OLD[5:])):
                    context = f"{listener}: {len(body)} bytes, {request[:80]!r}"
                    answer = await edge.send(listener, request, decision=with_body(body))
                    assert answer.status == 200, context
                    (seen,) = edge.upstream.seen
                    assert seen.body == body, context
                    assert is_framed(seen), context
                    assert seen.headers["x-picked"] == "10.0.0.1:8000", context
                    assert await edge.ending() is Ending.NATURAL, context
        await edge.assert_content()


async def test_response_body_is_transformed_in_every_mode_that_shows_it(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in SEES_RESPONSE_BODY:
            for body in (b"a", b"hello world", b"ab" * 50_000):
                for request in (post("/echo", body), post_chunked("/echo", body)):
                    context = f"{listener}: {len(body)} bytes, {request[:80]!r}"
                    response = Proceed(ANSWER.set_headers, transform=HoldingTransform(hold=7))
                    answer = await edge.send(listener, request, response=response)
                    assert answer.status == 200, context
                    assert answer.body == HoldingTransform.change(body), context
                    assert is_framed(answer), context
                    assert await edge.ending() is Ending.NATURAL, context
        await edge.assert_content()


async def test_response_that_the_transform_leaves_alone_arrives_as_it_came(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in LISTENERS:
            response = Proceed(ANSWER.set_headers, transform=HoldingTransform(hold=0))
            answer = await edge.send(listener, post("/echo", b"other"), response=response)
            assert (answer.status, answer.body) == (200, b"other"), listener
            assert is_framed(answer), listener
        await edge.assert_content()


async def test_transformed_response_may_end_in_trailers(tmp_path):
    async with gateway(tmp_path) as edge:
        for listener in SEES_RESPONSE_BODY:
            held = 7 if LISTENERS[listener].response == "FULL_DUPLEX_STREAMED" else 0
            response = Proceed(ANSWER.set_headers, transform=HoldingTransform(hold=held))
            answer = await edge.send(
                listener, post_chunked("/trailers", b"x"), response=response, needs_request_body=False
            )
            assert (answer.body, answer.trailers) == (b"AAAAAbcde", {"x-end": "1"}), listener
        await edge.assert_content()


async def test_response_without_a_body_keeps_its_headers(tmp_path):
    async with gateway(tmp_path) as edge:
        head = b"GET /none HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n\r\n"
        for listener in LISTENERS:
            transform = HoldingTransform(hold=7)
            answer = await edge.send(
                listener, head, response=Proceed(ANSWER.set_headers, transform=transform)
            )
            assert (answer.status, answer.body) == (204, b""), listener
            assert transform.fed == [], listener
        await edge.assert_content()
